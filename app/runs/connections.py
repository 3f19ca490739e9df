"""Open streams per principal; principals whose token is revoked or expires are disconnected.

A token that is revoked or expires admits no further request. What its principal began before ends here: runs with the
reason `revoked`, background jobs, streams. It is looked at who is still allowed, not at what was said to have changed:
another process may have revoked, and a request that was under way then may begin something later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from app.storage.changes import StoreFailed
from app.storage.people.members import bot_of
from app.storage.principals import Principal, in_use
from app.storage.store import Store
from app.storage.tokens import TokenCounts, TokenRow
from tools.jobs.records import Job, JobsFailed, NoSuchJob

EVERY_S = 0.5
SIGN_INS_EVERY_S = 2.0
ENDING_S = 2.0  # for runs and jobs to end before streams are cut that would end with them
GRACE_S = 0.5  # for their last event to reach who watches them
REVOKED = "revoked"
_log = logging.getLogger(__name__)


class TooManyStreams(Exception):
    """A principal has as many streams open as one may have."""


class NotAllowedAnyMore(Exception):
    """The token of a request was revoked, or expired, while the request was under way."""

    def __init__(self) -> None:
        super().__init__("This token has been revoked or has expired. Ask an admin for a new one.")


class Working(Protocol):
    """The part of `RunManager` that disconnecting principals needs."""

    def at_work(self) -> set[str]: ...

    async def cancel_of(self, principal: str, why: str) -> None: ...


class Labouring(Protocol):
    """The part of `Jobs` that disconnecting principals needs."""

    def at_work(self) -> set[str]: ...

    def listed(self, principal: str) -> list[Job]: ...

    async def cancel(self, job: str, principal: str) -> Job: ...


class Places(Protocol):
    """The part of `Presence` that a place needs."""

    def leave(self, place: OpenStream) -> None: ...


class OpenStream:
    """One stream of a principal. Entered by who opens the stream, who keeps it if all goes well; `leave()` at its end.

    `cut` ends the stream at once; who writes it sets that.
    """

    __slots__ = ("_left", "_places", "bot", "closed", "cut", "left", "page", "principal", "sign_in")

    def __init__(self, places: Places, principal: str, *, page: bool = False, sign_in: str = "", bot: str = "") -> None:
        self.principal = principal
        self.bot = bot  # whose token it was opened with, for a member
        self.sign_in = sign_in  # the lasting one that it was opened with
        self.page = page  # a person may decide there
        self.cut: Callable[[], None] = _nothing
        self.left = self.closed = False
        self._places = places
        self._left: asyncio.Event | None = None  # made when it is waited for: each stream would hold one

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self.leave()

    def leave(self) -> None:
        if not self.left:
            self.left = True
            self._places.leave(self)
            if self._left:
                self._left.set()

    async def wait_left(self) -> None:
        if not self.left:
            self._left = self._left or asyncio.Event()
            await self._left.wait()

    def check(self) -> None:
        """Before the stream begins. Raises NotAllowedAnyMore."""
        if self.closed:
            raise NotAllowedAnyMore

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.cut()


def _nothing() -> None:
    """A stream that has not begun is told by `check()`."""


class Presence:
    """Use `watch_forever()` as a task, and `close()` at the end."""

    def __init__(self, store: Store, runs: Working, jobs: Labouring, max_streams: int) -> None:
        self._store = store
        self._runs = runs
        self._jobs = jobs
        self._max_streams = max_streams
        self._places: dict[str, set[OpenStream]] = {}
        self._allowed: dict[str, set[str]] = {}  # name -> tokens, when it was looked last
        self._dead: set[str] = set()  # tokens
        self._gone: set[str] = set()  # names without a token in use
        self._counts: TokenCounts | None = None  # as they were then
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._looked_at_sign_ins = 0.0

    def place(self, principal: Principal, *, page: bool = False) -> OpenStream:
        """Count one open stream. Raises TooManyStreams, NotAllowedAnyMore."""
        self.check(principal)
        if (count := self.streams(principal.name)) >= self._max_streams:
            most = f"{count} streams are open, which is the most for one user."
            raise TooManyStreams(f"{most} Close one, or raise DRAGOMAN_MAX_STREAMS.")
        place = OpenStream(self, principal.name, page=page, sign_in=principal.sign_in, bot=bot_of(principal.member))
        self._places.setdefault(principal.name, set()).add(place)
        return place

    def leave(self, place: OpenStream) -> None:
        places = self._places.get(place.principal, set())
        places.discard(place)
        if not places:
            self._places.pop(place.principal, None)

    def check(self, principal: Principal) -> None:
        """That who was let in with a request may still be here. Raises NotAllowedAnyMore."""
        if principal.token in self._dead:
            raise NotAllowedAnyMore

    @property
    def asks_for_tokens(self) -> bool:
        """Return True if any token existed at the last check: then every request needs one."""
        return self._counts is not None and self._counts.all > 0

    def streams(self, name: str) -> int:
        """Return the number of a principal's open streams."""
        return len(self._places.get(name, ()))

    def kinds(self) -> dict[str, int]:
        """Return the number of open streams: those of pages, and others."""
        pages = sum(place.page for places in self._places.values() for place in places)
        return {"page": pages, "other": sum(map(len, self._places.values())) - pages}

    def has_page(self, name: str) -> bool:
        """Return True if a page of the principal is open, on which waiting calls are shown."""
        return any(place.page for place in self._places.get(name, ()))

    async def watch_forever(self) -> None:
        """Look who is still allowed, twice a second; a store that fails is asked again."""
        while True:
            try:
                await self.look()
            except StoreFailed as failure:
                _log.warning("tokens in force not read, retrying: %s", failure)
            await asyncio.sleep(EVERY_S)

    async def look(self) -> None:
        """Begin to show out whoever is here and not allowed any more. Raises StoreFailed."""
        now = time.time()
        if (counts := await self._store.token_counts(now)) != self._counts:
            self._sort(await self._store.tokens(), now)
            self._counts = counts
        self._begin_to_show_out(self._gone)
        if now - self._looked_at_sign_ins > SIGN_INS_EVERY_S:
            await self.look_for_ended_sign_ins()

    async def look_for_ended_sign_ins(self) -> None:
        """Close the streams of browsers whose sign-in has ended. Raises StoreFailed."""
        self._looked_at_sign_ins = time.time()
        places = [place for theirs in self._places.values() for place in theirs if place.sign_in]
        if not places:
            return
        now = time.time()
        lasting = {row.id for row in await self._store.sign_ins() if row.expires > now}
        for place in places:
            if place.sign_in not in lasting:
                place.close()

    def _sort(self, rows: Sequence[TokenRow], now: float) -> None:
        """Reconcile open streams, runs and jobs with the tokens in force."""
        allowed = dict[str, set[str]]()
        for row in rows:
            if in_use(row, now):
                allowed.setdefault(row.name, set()).add(f"{row.sha256} {row.version}")
        # Revoked and made again since the last look: what the first token began ends all the same.
        again = {name for name, tokens in self._allowed.items() if tokens - allowed.get(name, set())}
        self._allowed, self._dead = allowed, {row.sha256 for row in rows if not in_use(row, now)}
        self._gone = {row.name for row in rows} - allowed.keys()
        self._begin_to_show_out(again)

    def _begin_to_show_out(self, names: set[str]) -> None:
        if not names:
            return
        jobs = {name for one in self._jobs.at_work() for name in (one, bot_of(one))}
        bots = {place.bot for places in self._places.values() for place in places}
        here = self._places.keys() | self._runs.at_work() | jobs | bots
        for name in (names & here) - self._leaving.keys():
            self._leaving[name] = asyncio.create_task(self._show_out(name), name=f"show out {name}")

    async def revoked(self, name: str) -> None:
        """Returns when nothing of theirs runs any more. Raises StoreFailed."""
        await self.look()
        if name in self._leaving:
            await asyncio.wait([self._leaving[name]])

    async def close(self) -> None:
        for task in self._leaving.values():
            task.cancel()
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)

    async def _show_out(self, name: str) -> None:
        """Runs and jobs end with their last event; a stream that has not ended soon after is cut."""
        ending = asyncio.create_task(self._end_work(name))
        try:
            await asyncio.wait([ending], timeout=ENDING_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    for place in self._opened_by(name):
                        await place.wait_left()
            for place in self._opened_by(name):
                place.close()
            await ending
        finally:
            ending.cancel()
            del self._leaving[name]

    def _opened_by(self, name: str) -> list[OpenStream]:
        """The streams of a principal, and those that its token has opened for members."""
        return [place for places in self._places.values() for place in places if name in (place.principal, place.bot)]

    async def _end_work(self, name: str) -> None:
        await self._runs.cancel_of(name, REVOKED)  # first: until it is stopped, a run may start a job
        owners = [one for one in self._jobs.at_work() if name in (one, bot_of(one))]
        theirs = [(job.id, one) for one in owners for job in self._jobs.listed(one) if job.under_way]
        await asyncio.gather(*(self._end_job(job, owner) for job, owner in theirs))

    async def _end_job(self, job: str, name: str) -> None:
        try:
            await self._jobs.cancel(job, name)
        except NoSuchJob:
            return  # forgotten meanwhile
        except JobsFailed as failure:
            _log.error("%s of disconnected principal %s not stopped: %s", job, name, failure)
