"""The servers that share a database. `Alone` is the only one; `PostgresPeers` knows the others."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any, Protocol
from weakref import WeakValueDictionary

from msgspec import Struct, field

from app.replicas.nodes import JobRecords, Nodes
from app.storage.runs import EventRow

Work = Callable[[], Awaitable[None]]
Body = dict[str, Any]
Answerer = Callable[[Body], Coroutine[Any, Any, Any]]
"""Answers a question with what JSON can hold. Raises Refusal."""
Read = Callable[[], Awaitable[object]]


class Peers(Protocol):
    """The part of other servers that every room needs: to be the only one at something."""

    @property
    def is_alone(self) -> bool:
        """There is no other server."""

    @property
    def left_s(self) -> float:
        """Seconds in which this server may still act, if the database confirms its lease no more."""

    def lock(self, kind: str, name: str) -> AbstractAsyncContextManager[None]:
        """Be the only holder of this name among all servers.

        Locks of one kind must not be nested; those of different kinds in this order: places in session in conversation
        in key in background.
        """

    def changing(
        self, name: str, read: Read | None = None, *, kind: str = "held"
    ) -> AbstractAsyncContextManager[object]:
        """A lock whose holder is the only one of all servers to change something, and has read it anew."""

    async def on_duty(self, name: str, work: Work) -> None:
        """Run `work`, which never ends, while this server is the one of all that does it."""

    def on_count(self, tell: Callable[[int], None]) -> None:
        """Call `tell` with the number of servers that there are, now and then."""


class Feed(Struct, eq=False):
    """Rows of a run elsewhere that came by message, for one watcher; `news` is set when there are some, or may be."""

    rows: list[EventRow] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, after: int) -> list[EventRow]:
        """The rows that follow `after` without a gap; none if the store must be read."""
        rows, self.rows = [row for row in self.rows if row.seq > after], []
        return [row for place, row in enumerate(rows, start=after + 1) if row.seq == place]


class Replicas(Peers, Protocol):
    """The part of other servers that runs need: a protocol, since runs load without the driver of the database."""

    def begin_taking(self, take_over: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        """Claim runs that no server has, from now on, and call `take_over` with the id of each."""

    @property
    def nodes(self) -> Nodes: ...

    @property
    def job_records(self) -> JobRecords: ...

    @property
    def answerers(self) -> dict[str, Answerer]:
        """By question: add those that this server answers."""

    @property
    def me(self) -> str:
        """The id of this server."""

    async def owner_of(self, run: str) -> tuple[str | None, bool]:
        """The server that has a run, if any, and whether the run has ended. Raises StoreFailed."""

    async def others(self) -> list[str]:
        """The other servers that are not gone. Raises StoreFailed."""

    async def ask(self, replica: str, question: str, body: Body) -> Any:
        """The answer of another server. Raises Refusal, ReplicaGone, StoreFailed."""

    def drain(self, grace_s: float) -> None:
        """Claim nothing more: this server stops, and its runs get that time."""

    async def release(self, runs: Sequence[str]) -> None:
        """Leave runs to other servers. Raises StoreFailed."""

    def following(self, run: str) -> AbstractContextManager[Feed]: ...

    def publish(self, rows: Sequence[EventRow]) -> None:
        """Send rows of one run, which are durable, to the servers where it is watched."""

    def session_moved(self, session: str) -> None:
        """A run of the session has ended: the next one may begin, wherever it is."""

    def awaiting(self, session: str) -> AbstractContextManager[asyncio.Event]:
        """An event that is set when a run of the session has ended, or may have."""


class Alone:
    """The only server of its database."""

    is_alone = True
    left_s = math.inf

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def lock(self, kind: str, name: str) -> AsyncGenerator[None, None]:
        async with self._locks.setdefault((kind, name), asyncio.Lock()):
            yield

    def changing(self, name: str, read: Read | None = None, *, kind: str = "held") -> asyncio.Lock:
        return asyncio.Lock()

    async def on_duty(self, name: str, work: Work) -> None:
        await work()

    def on_count(self, tell: Callable[[int], None]) -> None:
        tell(1)


async def ask_others(
    replicas: Replicas, question: str, body: Body, error_of: Callable[[str, Refusal], Exception | None]
) -> None:
    """Wait until each other server has answered or is gone. Raises what `error_of` makes of a refusal, StoreFailed."""

    async def ask(replica: str) -> None:
        try:
            await replicas.ask(replica, question, body)
        except ReplicaGone:
            return
        except Refusal as refusal:
            if error := error_of(replica, refusal):
                raise error from refusal

    asking = [ask(replica) for replica in await replicas.others()]
    for failure in await asyncio.gather(*asking, return_exceptions=True):
        if isinstance(failure, BaseException):
            raise failure


class ReplicaGone(Exception):
    """The server that was asked has stopped; what it has done of the request is not known."""


class Refusal(Exception):
    """A server that was asked by another refuses. `name` says why, for programs; `fields` belong to it."""

    def __init__(self, name: str, words: str, fields: dict[str, Any] | None = None) -> None:
        super().__init__(words)
        self.name = name
        self.fields = fields or {}
