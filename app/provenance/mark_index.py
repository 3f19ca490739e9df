"""The index of untrusted text: which passages of a text a principal's conversations have read from outside before.

One for each principal, and bounded. Its rows are those of the database (`UntrustedMarks`), which go with their
sessions; what of them is in memory is brought up to date when a run begins.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol

from msgspec import Struct, field

from app.provenance.marks import Digester, bare, words_of
from app.storage.changes import ChangeWriter
from app.storage.sessions import UntrustedMarks, UntrustedMarksForgotten

MOST_BYTES = 4 << 20  # of digests of one principal
ENOUGH = MOST_BYTES * 3 // 4  # that are left once there were more: the newest
MOST_ROWS = 8_192
MOST_HELD = 1 << 20  # digests in memory, but for those of the principal whose run begins
MODULUS = 1_000_000_007  # of the checksum of times
logger = logging.getLogger(__name__)
A_MESSAGE = "an untrusted message"


class Source(Struct, frozen=True):
    """An untrusted text. `tool` is empty for that of a message."""

    session: str
    title: str
    tool: str

    @property
    def place(self) -> str:
        what = f"the result of {self.tool}" if self.tool else A_MESSAGE
        return f"{what} in the conversation {self.title!r}"


Counts = Callable[[Source], bool]
"""Returns False for a source that is trusted by now."""


class MarkStore(ChangeWriter, Protocol):
    async def marks_state(self, principal: str) -> tuple[int, int]: ...

    async def marks(self, principal: str, after: int) -> list[tuple[UntrustedMarks, str]]: ...


class KnownText(Struct):
    """The untrusted texts of one principal. `state` is that of the database when they were read."""

    new_digester: Callable[[], Digester]
    sources: dict[int, Source] = field(default_factory=dict)  # digest -> the latest text with it
    state: tuple[int, int] = (0, 0)
    newest: int = 0
    size: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _digester: Digester | None = None

    @property
    def digester(self) -> Digester:
        if self._digester is None:
            self._digester = self.new_digester()
        return self._digester

    def add(self, row: UntrustedMarks, title: str) -> None:
        source = Source(row.session, title, row.place)
        self.sources.update(dict.fromkeys(array("Q", row.digests), source))
        self.state = self.state[0] + 1, self.state[1] + row.at % MODULUS
        self.newest, self.size = max(self.newest, row.at), self.size + len(row.digests)

    def clear(self) -> None:
        self.sources.clear()
        self.state, self.newest, self.size = (0, 0), 0, 0

    def source_of(self, text: str, counts: Counts) -> Source | None:
        """Return the untrusted text that has a passage of this one: of several passages, that of the first."""
        if not self.sources:
            return None
        found = (self.sources.get(digest) for _, digest in self.digester.shingles(words_of(bare(text))))
        return next((one for one in found if one and counts(one)), None)


class MarkIndex:
    """The untrusted texts of all principals. `key` returns the key of their digests, raises OSError.

    `stored` waits until the changes that were put before are durable. Where the database is `shared`, other servers
    add to it.
    """

    def __init__(
        self, store: MarkStore, key: Callable[[], bytes], stored: Callable[[], Awaitable[None]], *, shared: bool
    ) -> None:
        self._store = store
        self._key = key
        self._stored = stored
        self._shared = shared
        self._known: OrderedDict[str, KnownText] = OrderedDict()
        self._last = 0

    async def known(self, principal: str) -> KnownText:
        """The untrusted texts of a principal, as the database has them now. Raises StoreFailed."""
        if (known := self._known.get(principal)) is None:
            known = self._known[principal] = KnownText(partial(self._digester, principal))
        elif known.state == (0, 0) and not self._shared:
            return known  # only this server could have added some
        self._known.move_to_end(principal)
        async with known.lock:
            await self._update(principal, known)
        self._drop_others()
        return known

    async def _update(self, principal: str, known: KnownText) -> None:
        state = await self._store.marks_state(principal)
        if state[0] < known.state[0]:  # deleted, or on their way
            await self._stored()
            state = await self._store.marks_state(principal)
        if state != known.state:
            rows = await self._store.marks(principal, known.newest)
            times = sum(row.at % MODULUS for row, _ in rows)
            if (known.state[0] + len(rows), known.state[1] + times) != state:
                known.clear()
                rows = await self._store.marks(principal, 0)
            await asyncio.to_thread(_add_all, known, rows)
        if known.size > MOST_BYTES or known.state[0] > MOST_ROWS:
            await self._shorten(principal, known)

    async def _shorten(self, principal: str, known: KnownText) -> None:
        """Forget the oldest."""
        kept, left = await self._store.marks(principal, 0), ENOUGH
        begin = max(0, len(kept) - MOST_ROWS * 3 // 4)
        for at in range(len(kept) - 1, begin - 1, -1):
            if (left := left - len(kept[at][0].digests)) < 0:
                begin = at + 1
                break
        if begin:
            await self._store.write([UntrustedMarksForgotten(principal, kept[begin - 1][0].at)])
        known.clear()
        await asyncio.to_thread(_add_all, known, kept[begin:])

    def _drop_others(self) -> None:
        held = sum(len(known.sources) for known in self._known.values())
        while held > MOST_HELD and len(self._known) > 1:
            held -= len(self._known.popitem(last=False)[1].sources)

    def _digester(self, principal: str) -> Digester:
        try:
            return Digester(self._key(), principal)
        except OSError as error:
            logger.warning("untrusted text is known again until this server ends, its key cannot be read: %s", error)
            return Digester(secrets.token_bytes(32), principal)

    def new_time(self) -> int:
        """A time in microseconds that no row of this server has."""
        self._last = max(time.time_ns() // 1_000, self._last + 1)
        return self._last


def packed(digests: Iterable[int]) -> bytes:
    return array("Q", digests).tobytes()


def _add_all(known: KnownText, rows: Iterable[tuple[UntrustedMarks, str]]) -> None:
    for row, title in rows:
        known.add(row, title)
