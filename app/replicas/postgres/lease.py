"""The lease of a replica: it may act as long as the database has confirmed within the lease that it is alive.

The database's clock decides when a lease is over for the others, the replica's own monotonic clock when it stops
acting, which is earlier. So no clock needs to be right, and no two replicas own one run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.replicas.postgres.failures import FAILURES, SAID, described
from app.replicas.postgres.messages import ALL, ORPHANS, Open, encoded
from app.storage.postgres.connections import AGAIN_S, CONNECT_S, name_of

BEATS = 5  # in a lease
ACTS = 0.7  # of a lease in which the replica acts: the rest is for ending its tools
ENDED = 0.85  # of a lease after which they must have ended: else the replica is killed
NEXT_LOOK_S = 0.02  # behind the end of another replica's lease
RETRY_S = 0.25
ANSWER_S = 4.0  # at most, also of a long lease: then another connection is tried
BEGINS_S = CONNECT_S + ANSWER_S  # as another replica: until then there is nothing that must end with a lease
LEAVING_S = 2.0  # for the database to take it
REGISTER = """
    INSERT INTO replicas (id, node, version, folder, state, lease_until)
    VALUES ($1, $2, $3, $4, 'up', clock_timestamp() + make_interval(secs => $5))
"""
PREDECESSORS = "SELECT id FROM replicas WHERE node = $1 AND folder = $2 AND state <> 'gone' AND id <> $3"
BEAT = """
    UPDATE replicas SET lease_until = clock_timestamp() + make_interval(secs => $2), state = $3
    WHERE id = $1 AND state <> 'gone' RETURNING 1
"""
EXPIRED = "SELECT id FROM replicas WHERE state <> 'gone' AND lease_until < clock_timestamp()"
FIRST_TO_EXPIRE = """
    SELECT extract(epoch FROM min(lease_until) - clock_timestamp())::float8 FROM replicas
    WHERE state <> 'gone' AND id <> $1
"""
# What it had begun would hold its locks until the network notices that it is away.
HANG_UP = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1"
LAST_WRITE = "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))"  # behind it: each write holds it shared
BURY = "UPDATE replicas SET state = 'gone' WHERE id = $1 AND state <> 'gone' {expired} RETURNING 1"
ONLY_EXPIRED = "AND lease_until < clock_timestamp()"
ORPHAN = "UPDATE runs SET owner = NULL WHERE owner = $1 AND ended IS NULL"
ANNOUNCE = f"SELECT pg_notify('{ALL}', '{encoded(ORPHANS, {})}')"
FORGET = "DELETE FROM replicas WHERE state = 'gone' AND lease_until < clock_timestamp() - interval '1 day'"

logger = logging.getLogger(__name__)


class Replica(Struct, frozen=True):
    """`id` is new at each start, `node` stays. `folder` is the data directory, which no other server can use."""

    id: str
    node: str
    version: str
    folder: str


def new_id() -> str:
    return f"rep_{token_hex(8)}"


class Lease:
    """Use `hold_forever` as a task. `on_beat` is called with the connection after each beat.

    When the lease is lost `on_lost` ends all that the replica does, and the server goes on as another replica, which
    `on_beginning` is given and, once it is registered, `on_begun`. `on_alive` is called with the monotonic time until
    which the process may live, each time that this has moved. `on_half_open` is called with a new connection
    that is answered after one was not: the others may wait in vain, too, if they were not told that they have ended.
    """

    def __init__(self, open_connection: Open, me: Replica, lease_s: float) -> None:
        self.me = me
        self.lease_s = lease_s
        self.state = "up"
        self.on_beat: Callable[[Any], Awaitable[None]] = _nothing
        self.on_lost: Callable[[], Awaitable[None]] = _nothing
        self.on_beginning: Callable[[Replica], None] = _ignore
        self.on_begun: Callable[[Replica], Awaitable[None]] = _nothing
        self.on_alive: Callable[[float], None] = _ignore
        self.on_half_open: Callable[[Any], Awaitable[None]] = _nothing
        self._open = open_connection
        self.confirmed = 0.0  # monotonic time at which the last confirmed beat was sent
        self._buries_from = 0.0
        self._look_at = 0.0  # monotonic time of the next beat
        self._connection: Any = None
        self._unanswered = False  # the connection before
        self._beat_now = asyncio.Event()

    @property
    def left_s(self) -> float:
        """Seconds in which the replica may still act if no beat is confirmed any more."""
        return self.confirmed + ACTS * self.lease_s - time.monotonic()

    async def begin(self) -> None:
        """Register the replica. Raises what the connection raises."""
        me = self.me
        self.on_alive(time.monotonic() + BEGINS_S + self.lease_s)
        self.on_beginning(me)
        async with asyncio.timeout(BEGINS_S):
            await self._connect()
            for row in await self._connection.fetch(PREDECESSORS, me.node, me.folder, me.id):
                await self._bury(row["id"])  # this server has its data directory, so that one is dead
            sent = await self._register()
        self._confirm(sent)
        await self.on_begun(me)

    async def _register(self) -> float:
        """Return the monotonic time at which was sent what the database has confirmed."""
        me, sent = self.me, time.monotonic()
        await self._connection.execute(REGISTER, me.id, me.node, me.version, me.folder, self.lease_s)
        while time.monotonic() > sent + ACTS / 2 * self.lease_s:  # the answer is so late that the lease may have ended
            sent = time.monotonic()
            if not await self._renewed():
                raise ConnectionAbortedError("another server holds it for dead")
        return sent

    async def hold_forever(self) -> None:
        while True:
            limit, is_new = self._in_time(), self._connection is None
            try:
                async with limit:
                    if self._connection is None:
                        await self._connect()
                    alive = await self._beat()
                if not alive:
                    logger.error("other servers hold replica %s for dead: it begins again", self.me.id)
                    await self._begin_again()
                await self._look_around()
            except FAILURES as error:
                logger.warning("the lease of replica %s is not confirmed: %s", self.me.id, described(error))
                self._unanswered = self._unanswered or not isinstance(error, SAID)
                self.disconnect()
                if self.left_s > 0:
                    await asyncio.sleep(RETRY_S if is_new else 0)
                elif self._was_asleep(limit):
                    logger.warning("this server stood still: replica %s asks if its lease holds", self.me.id)
                else:
                    await self._begin_again()
                continue
            await self._pause()

    def beat_soon(self) -> None:
        """Look for runs without an owner, and for dead replicas, now."""
        self._beat_now.set()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(max(self._look_at - time.monotonic(), NEXT_LOOK_S)):
                await self._beat_now.wait()
        except TimeoutError:
            return
        self._beat_now.clear()

    async def _beat(self) -> bool:
        sent = time.monotonic()
        alive = await self._renewed()
        if alive:
            self._confirm(sent)
        return alive

    async def _renewed(self) -> bool:
        """Renew the lease in the database, unless other servers hold this replica for dead."""
        return bool(await self._connection.fetchval(BEAT, self.me.id, self.lease_s, self.state))

    def _confirm(self, sent: float) -> None:
        self.confirmed = sent
        self.on_alive(sent + ENDED * self.lease_s)

    def _in_time(self) -> asyncio.Timeout:
        """Half of the time that is left: then another connection has a chance, too. That has all of it.

        A server that was frozen may wake up when none is left. The lease is still its own if the database renews it,
        which the undertaker lets it find out: half of the time in which its tools must end.
        """
        left_s = self.left_s
        if left_s <= 0:
            return asyncio.timeout(max((left_s + (ENDED - ACTS) * self.lease_s) / 2, 0.01))
        if self._connection is None:
            return asyncio.timeout(min(left_s, CONNECT_S))
        return asyncio.timeout(min(max(left_s / 2, min(left_s, RETRY_S)), ANSWER_S))

    def _was_asleep(self, limit: asyncio.Timeout) -> bool:
        """Return True if a limit was noticed long after it was over: the process stood still, and its answers wait."""
        due = limit.when()
        return due is not None and asyncio.get_running_loop().time() > due + RETRY_S

    async def _look_around(self) -> None:
        """Bury the dead, and do what is to be done after a beat, within the lease."""
        async with self._in_time():
            if self._unanswered:
                await self.on_half_open(self._connection)
                self._unanswered = False
            if time.monotonic() >= self._buries_from:
                for row in await self._connection.fetch(EXPIRED):
                    await self._bury(row["id"], ONLY_EXPIRED)
                await self._connection.execute(FORGET)
            await self.on_beat(self._connection)
            expires_in_s = await self._connection.fetchval(FIRST_TO_EXPIRE, self.me.id)
        self._look_at = self.confirmed + self.lease_s / BEATS  # however long this look took
        if expires_in_s is not None:
            expires_at = max(time.monotonic() + expires_in_s, self._buries_from)
            self._look_at = min(self._look_at, expires_at + NEXT_LOOK_S)

    async def _bury(self, replica: str, condition: str = "") -> None:
        """Take its runs from a replica, behind its last write."""
        if replica != self.me.id:
            await self._connection.execute(HANG_UP, name_of(replica))
        try:
            await bury(self._connection, replica, condition)
        except BaseException:
            self.disconnect()  # a rollback would wait for the database, longer than the lease
            raise

    async def _begin_again(self) -> None:
        """End all that this replica does, and go on as another one as soon as the database is there."""
        await self.on_lost()
        while True:
            # The one tried before may be registered: its answer may have been lost.
            self.me = replace(self.me, id=new_id())
            try:
                await self.begin()
                return
            except FAILURES as error:
                logger.warning("replica %s waits for the database: %s", self.me.id, described(error))
                await self.on_lost()
                self.disconnect()
                await asyncio.sleep(RETRY_S)

    async def give_up(self) -> None:
        """Leave: runs that are left wait for another replica."""
        for _ in range(2):  # the second time on another connection
            try:
                async with asyncio.timeout(LEAVING_S):
                    if self._connection is None:
                        await self._connect()
                    await self._bury(self.me.id)
                break
            except FAILURES as error:
                logger.warning(
                    "other servers wait until the lease of replica %s is over: %s", self.me.id, described(error)
                )
                self.disconnect()
        self.disconnect()

    async def _connect(self) -> None:
        self.disconnect()
        left_s = self.left_s
        self._connection = await self._open(again_s=min(left_s / 2, AGAIN_S) if left_s > 0 else AGAIN_S)
        self._buries_from = time.monotonic() + self.lease_s  # the database may have been away for the others, too

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


async def bury(connection: Any, replica: str, condition: str = "") -> None:
    """Take its runs from a replica in one transaction. `connection` is one of asyncpg."""
    await connection.execute("BEGIN")
    await connection.execute(LAST_WRITE, replica)
    if await connection.fetchval(BURY.format(expired=condition), replica):
        orphans = await connection.execute(ORPHAN, replica)
        await connection.execute(ANNOUNCE)
        logger.warning("replica %s is gone: %s of its runs wait for another", replica, orphans.split()[-1])
    await connection.execute("COMMIT")


def _ignore(_: object) -> None:
    """Do nothing."""


async def _nothing(*_: object) -> None:
    """Do nothing."""
