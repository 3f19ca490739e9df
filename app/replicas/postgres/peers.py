"""All that a replica needs of the others, through the database that they share."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Protocol

import asyncpg

from app.replicas.nodes import JobRecords, Nodes
from app.replicas.peers import Read
from app.replicas.postgres.asks import Asks
from app.replicas.postgres.claims import COUNT, MINE, MOST, OTHERS, OWNER, RELEASE, claim
from app.replicas.postgres.duties import Duties
from app.replicas.postgres.failures import FAILURES, described
from app.replicas.postgres.lease import BEGINS_S, Lease, Replica
from app.replicas.postgres.locks import Locks, SharedLock
from app.replicas.postgres.messages import ANSWER_S, ORPHANS, Messages
from app.replicas.postgres.undertaker import undertaker
from app.replicas.postgres.watching import Watching
from app.storage.changes import LOST, StoreFailed
from app.storage.postgres.connections import CLOSE_S, Connections, Line, name_of
from tools.base.tasks import in_background

POOL = 36  # connections for locks and questions, opened when they are needed
COMMAND_S = 30.0
MOVED = "moved"  # the kind of a message: a run of a session has ended

TakeOver = Callable[[str], Coroutine[Any, Any, None]]
Fence = Callable[[str], None]


class Holder(Protocol):
    """The runs of this server."""

    def has(self, run: str) -> bool: ...

    async def abandon(self) -> None:
        """End all that is done for them, and write nothing."""


logger = logging.getLogger(__name__)


class PostgresPeers:
    """Use it as `async with peers.opened()`; before, there is no connection."""

    is_alone = False

    def __init__(self, url: str, me: Replica, lease_s: float) -> None:
        line = Line(url, name_of(me.id), COMMAND_S)
        pool = asyncpg.create_pool(url, min_size=0, max_size=POOL, connect=line.connect)
        self.messages = Messages(line.connect)
        self.lease = Lease(line.connect, me, lease_s)
        self.asks = Asks(pool, self.messages)
        self.watching = Watching(self.messages)
        self._take_over: TakeOver | None = None  # before it is set, nothing is claimed
        self._holder: Holder | None = None
        self._fence: Fence = _unfenced
        self._moves: dict[str, set[asyncio.Event]] = {}  # by session, of those who wait for their turn
        self._line = line
        self._store: Connections | None = None
        self._pool = pool
        self._counters: list[Callable[[int], None]] = []
        self._locks = Locks(pool)
        self.lock = self._locks.lock
        self.ask = self.asks.ask
        self.answerers = self.asks.answerers
        self.following = self.watching.following
        self.publish = self.watching.publish
        free_runs = partial(self.messages.send_all, ORPHANS)
        self.nodes = Nodes(me.node, self._connection, lambda: self.me, free_runs)
        self.job_records = JobRecords(self._connection, lambda: self.me)
        self._duties = Duties()
        self.on_duty = self._duties.run
        self._taking: dict[str, asyncio.Task[None]] = {}
        self._is_closed = False
        self._is_sure = True  # that all runs which were claimed are here
        self.messages.handlers |= {ORPHANS: lambda _: self.lease.beat_soon(), MOVED: self._moved}
        self.messages.on_gap.append(self._wake_all)
        self.lease.on_beat = self._on_beat
        self.lease.on_beginning = lambda me: line.rename(name_of(me.id))
        self.lease.on_begun = self._on_begun
        self.lease.on_lost = self._on_lost
        self.lease.on_half_open = self._hang_up_half_open

    @property
    def me(self) -> str:
        return self.lease.me.id

    @property
    def left_s(self) -> float:
        return self.lease.left_s

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[PostgresPeers, None]:
        """Register the replica and hold its lease. Raises StoreFailed."""
        async with AsyncExitStack() as stack:
            try:
                await self._pool
                stack.push_async_callback(_close, self._pool)
                until = time.monotonic() + BEGINS_S + self.lease.lease_s
                self.lease.on_alive = await stack.enter_async_context(undertaker(until))
                stack.callback(self.lease.disconnect)
                await self.lease.begin()
                stack.push_async_callback(self._end_takings)
            except FAILURES as error:
                raise StoreFailed(
                    f"The database cannot be reached: {described(error)}. Check DRAGOMAN_DATABASE_URL."
                ) from error
            stack.push_async_callback(self.lease.give_up)
            for work in (
                self.messages.send_forever,
                self.messages.listen_forever,
                self.watching.renew_forever,
                self.lease.hold_forever,
            ):
                await stack.enter_async_context(in_background(work(), f"peers: {work.__name__}"))
            try:
                yield self
            finally:
                self._is_closed = True

    def begin_taking(self, take_over: TakeOver) -> None:
        self._take_over = take_over
        self.lease.beat_soon()

    def begin(self, holder: Holder, fence: Fence, store: Connections) -> None:
        """Answer for the runs of this server. `fence` takes the id of the replica that all writes depend on.

        `store` has the connections of the store.
        """
        self._holder, self._fence, self._store = holder, fence, store
        self.watching.has_run = holder.has
        fence(self.me)

    def changing(self, name: str, read: Read | None = None, *, kind: str = "held") -> SharedLock:
        return SharedLock(self, kind, name, read)

    def on_count(self, tell: Callable[[int], None]) -> None:
        self._counters.append(tell)

    async def owner_of(self, run: str) -> tuple[str | None, bool]:
        async with self._connection() as connection:
            row = await connection.fetchrow(OWNER, run)
        return (row["owner"], row["ended"]) if row else (None, True)

    async def others(self) -> list[str]:
        async with self._connection() as connection:
            return [row["id"] for row in await connection.fetch(OTHERS, self.me)]

    async def release(self, runs: Sequence[str]) -> None:
        async with self._connection() as connection:
            await connection.executemany(RELEASE, [(run, self.me) for run in runs])
        self.messages.send_all(ORPHANS)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Any, None]:
        try:
            async with self._pool.acquire() as connection:
                yield connection
        except FAILURES as error:
            raise StoreFailed(f"The database failed: {described(error)}. Try again.") from error

    @contextmanager
    def awaiting(self, session: str) -> Iterator[asyncio.Event]:
        moved, others = asyncio.Event(), self._moves.setdefault(session, set())
        others.add(moved)
        try:
            yield moved
        finally:
            others.discard(moved)
            if not others and self._moves.get(session) is others:
                del self._moves[session]

    def session_moved(self, session: str) -> None:
        """A run of the session has ended: the next one may begin, wherever it is."""
        self.messages.send_all(MOVED, session=session)

    def drain(self, grace_s: float) -> None:
        """Claim nothing more, and say so. If the database does not answer in that time, it is given up."""
        self.lease.state = "draining"
        self.lease.beat_soon()
        until_s = grace_s + ANSWER_S
        asyncio.get_running_loop().call_later(until_s, self._give_up_database, time.monotonic(), until_s)

    def _give_up_database(self, since: float, waited_s: float) -> None:
        """Let nothing wait for it that holds the end of this server up; others go on when the lease is over."""
        if self.lease.confirmed < since and not self._is_closed:
            logger.warning("the database has not answered for %.0f s: this server ends without it", waited_s)
            self._line.close()
            if self._store:
                self._store.line.close()

    async def _on_begun(self, me: Replica) -> None:
        self.asks.me = self.watching.me = me.id
        await self.messages.answer_to(me.id)
        self._fence(me.id)

    async def _on_lost(self) -> None:
        self._fence(LOST)
        self._line.rename(name_of(LOST))  # they may hang, and the work that waits for them with them
        self._duties.stop()
        await self._end_takings()  # else one would go on under the next id
        if self._holder:
            await self._holder.abandon()

    async def _hang_up_half_open(self, connection: Any) -> None:
        await self._pool.expire_connections()  # those that are not in use
        await self._line.hang_up_half_open(connection)
        if self._store:
            await self._store.hang_up_half_open(connection)

    async def _end_takings(self) -> None:
        if takings := list(self._taking.values()):
            for taking in takings:
                taking.cancel()
            await asyncio.wait(takings)

    async def _on_beat(self, connection: Any) -> None:
        await self._duties.look(connection)
        count = await connection.fetchval(COUNT)
        for tell in self._counters:
            tell(count)
        if self._take_over is None or self.lease.state != "up":
            return
        if not self._is_sure:
            for row in await connection.fetch(MINE, self.me):
                if self._holder and not self._holder.has(row["id"]):
                    self._start_taking(row["id"])
        self._is_sure = False  # if the answer is lost
        runs = await claim(connection, self.me, self.lease.me.node)
        self._is_sure = True
        for run in runs:
            self._start_taking(run)
        if len(runs) == MOST:
            self.lease.beat_soon()  # for more, once others had their part

    def _start_taking(self, run: str) -> None:
        if run not in self._taking:
            task = self._taking[run] = asyncio.create_task(self._take(run), name=f"take over {run}")
            task.add_done_callback(lambda _: self._taking.pop(run))

    async def _take(self, run: str) -> None:
        assert self._take_over
        taking = asyncio.ensure_future(self._take_over(run))
        try:
            await asyncio.wait([taking])
        except asyncio.CancelledError:
            taking.cancel()
            await asyncio.wait([taking])
            raise
        if error := taking.exception():  # other replicas go on without it
            logger.error("run %s not taken over", run, exc_info=error)
            await asyncio.sleep(self.lease.lease_s)  # it may fail at all of them
            try:
                await self.release([run])
            except StoreFailed:
                self._is_sure = False

    def _moved(self, body: dict[str, Any]) -> None:
        for waiting in self._moves.get(body["session"], ()):
            waiting.set()
        self.lease.beat_soon()

    def _wake_all(self) -> None:
        for events in self._moves.values():
            for waiting in events:
                waiting.set()


def _unfenced(_: str) -> None:
    """Do nothing until there is a store."""


async def _close(pool: Any) -> None:
    """Close a pool whose connections may be half-open: it would wait for each of them without end."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await pool.close()
    except FAILURES:
        pool.terminate()
