"""The bytes of attachments in memory: those that come in, and those that runs ask for in each of their rounds."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from weakref import WeakValueDictionary

from app.storage.changes import StoreFailed
from app.storage.files.store import FileStore

MOST_BYTES = 64 << 20  # that are kept in memory, of all runs
AT_A_TIME = 4  # large requests that are taken of one principal; their others wait


class Files:
    """One per server. A file never changes: it is known by its hash."""

    def __init__(self, store: FileStore, most_bytes: int = MOST_BYTES) -> None:
        self._store = store
        self._most = most_bytes
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._one_reader: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._coming: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def coming(self, principal: str) -> asyncio.Semaphore:
        """To be held while a large request of theirs is read."""
        return self._coming.setdefault(principal, asyncio.Semaphore(AT_A_TIME))

    async def read(self, sha256: str) -> bytes:
        """Raises StoreFailed, also for a file that is not there (any more)."""
        async with self._one_reader.setdefault(sha256, asyncio.Lock()):  # many runs may ask for it at once
            data = self._kept.get(sha256)
            if data is None:
                data = await self._store.file(sha256)
                if data is None:
                    raise StoreFailed(f"The file {sha256} of a message is missing. Send it again in a new session.")
                self._keep(sha256, data)
            else:
                self._kept.move_to_end(sha256)
            return data

    def _keep(self, sha256: str, data: bytes) -> None:
        if len(data) > self._most:
            return
        self._kept[sha256] = data
        self._size += len(data)
        while self._size > self._most:
            _, oldest = self._kept.popitem(last=False)
            self._size -= len(oldest)
