"""The bytes of attachments in memory: a cache for runs, which read them in each round, and a limit of uploads."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from weakref import WeakValueDictionary

from app.storage.changes import StoreFailed
from app.storage.files.store import FileStore

MOST_BYTES = 64 << 20  # cached, of all runs
AT_A_TIME = 4  # large requests of one principal that are read at a time; others wait


class Files:
    """One per server. A file never changes: it is known by its hash."""

    def __init__(self, store: FileStore, most_bytes: int = MOST_BYTES) -> None:
        self._store = store
        self._most = most_bytes
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._one_reader: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._uploads: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def upload_slots(self, principal: str) -> asyncio.Semaphore:
        """A semaphore to hold while a large request of the principal is read."""
        return self._uploads.setdefault(principal, asyncio.Semaphore(AT_A_TIME))

    async def read(self, sha256: str) -> bytes:
        """The bytes of a file. Raises StoreFailed, also for a file that does not exist (any more)."""
        async with self._one_reader.setdefault(sha256, asyncio.Lock()):  # many runs may read it at once
            data = self._cache.get(sha256)
            if data is None:
                data = await self._store.file(sha256)
                if data is None:
                    raise StoreFailed(f"The file {sha256} of a message is missing. Send it again in a new session.")
                self._add(sha256, data)
            else:
                self._cache.move_to_end(sha256)
            return data

    def _add(self, sha256: str, data: bytes) -> None:
        if len(data) > self._most:
            return
        self._cache[sha256] = data
        self._size += len(data)
        while self._size > self._most:
            _, oldest = self._cache.popitem(last=False)
            self._size -= len(oldest)
