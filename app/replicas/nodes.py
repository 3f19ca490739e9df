"""The nodes that servers run on, and what belongs to one of them: homes of people, and jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

HOME_GONE = "home_gone"  # why a run ends whose node does not come back

HOME = "SELECT node FROM homes WHERE principal = $1"
FIX = "INSERT INTO homes (principal, node) VALUES ($1, $2) ON CONFLICT (principal) DO NOTHING"
AT = """
    SELECT id FROM replicas WHERE node = $1 AND state = 'up' AND lease_until > clock_timestamp() ORDER BY random()
"""
NO_SERVER = "NOT EXISTS (SELECT 1 FROM replicas p WHERE p.node = {node} AND p.state <> 'gone')"
WAITS = f"owner IS NULL AND ended IS NULL AND home <> '*' AND {NO_SERVER.format(node='home')}"
WAITS_FOR = f"SELECT home FROM runs WHERE id = $1 AND {WAITS}"
WAITING = f"""
    SELECT id, home AS node, GREATEST(created, (
        SELECT EXTRACT(EPOCH FROM MAX(lease_until))::float8 FROM replicas WHERE node = home
    )) AS since FROM runs WHERE {WAITS} ORDER BY number LIMIT 1000
"""
HOLD = f"UPDATE runs SET owner = $2 WHERE id = $1 AND {WAITS} RETURNING 1"
END = f"UPDATE runs SET asked = $2, home = '*' WHERE id = $1 AND {WAITS} RETURNING 1"
ASKED = "SELECT asked FROM runs WHERE id = $1"
SHARE = "WITH homeless AS (DELETE FROM homes) UPDATE runs SET home = '*' WHERE home <> '*' AND ended IS NULL"

# A replica that has been held for dead keeps nothing any more.
KEEP = """
    INSERT INTO jobs (id, node, replica, principal, session, under_way, record)
    SELECT $1, $2, $3, $4, $5, $6, $7 WHERE EXISTS (SELECT 1 FROM replicas WHERE id = $3 AND state <> 'gone')
    ON CONFLICT (id) DO UPDATE SET node = excluded.node, replica = excluded.replica, under_way = excluded.under_way,
        record = excluded.record, updated = clock_timestamp()
"""
DROP = "DELETE FROM jobs WHERE id = ANY ($1::text[])"
# A replica whose row has gone too was gone for a day.
ELSEWHERE = """
    SELECT jobs.id, jobs.node, replica, principal, session, under_way, record,
        CASE WHEN r.id IS NULL THEN 86400
            WHEN r.state = 'gone' THEN GREATEST(0, EXTRACT(EPOCH FROM clock_timestamp() - r.lease_until))
        END::float8 AS away_s
    FROM jobs LEFT JOIN replicas r ON r.id = jobs.replica
    WHERE replica <> $1 AND ($2::text IS NULL OR principal = $2) ORDER BY jobs.id
"""
FORGET_OLD = """
    DELETE FROM jobs WHERE updated < clock_timestamp() - make_interval(secs => $1)
    AND NOT EXISTS (SELECT 1 FROM replicas WHERE id = jobs.replica AND state <> 'gone')
"""

Connect = Callable[[], AbstractAsyncContextManager[Any]]
"""A connection of asyncpg, whose failures are StoreFailed."""


class WaitingRun(Struct, frozen=True):
    """A run that only servers of a node may have, of which there has been none since this Unix time, or longer."""

    id: str
    node: str
    since: float


class JobRecord(Struct, frozen=True):
    """A job as the replica that has it has written it down. `away_s`: for how long that one has been gone, if it is."""

    id: str
    node: str
    replica: str
    principal: str
    session: str
    under_way: bool
    record: str
    away_s: float | None = None


class NodeState(Struct, frozen=True):
    """`replicas` are those that are not gone; `away_s`: for how long there has been none, if that is known."""

    name: str
    replicas: int
    people: int
    waiting: int
    jobs: int
    away_s: float | None = None


class Nodes:
    """The homes of people, and the runs that wait for a node without a server. Every method raises StoreFailed.

    `here` is the node of this server. `shares`: all nodes have one workspace, and no principal has a home.
    """

    def __init__(self, here: str, connect: Connect, me: Callable[[], str], on_free: Callable[[], None]) -> None:
        self.here = here
        self.shares = False
        self._connect = connect
        self._me = me
        self._on_free = on_free

    async def share(self) -> None:
        """All nodes have one workspace: people need no home."""
        self.shares = True
        async with self._connect() as connection:
            await connection.execute(SHARE)

    async def home_of(self, principal: str) -> str | None:
        return await self._value(HOME, principal)

    async def fix_home(self, principal: str) -> str:
        """The node of a principal; it is this one from now on if there was none."""
        async with self._connect() as connection:
            if (home := await connection.fetchval(HOME, principal)) is None:
                await connection.execute(FIX, principal, self.here)
                home = await connection.fetchval(HOME, principal)
            return str(home or self.here)

    async def replicas_at(self, node: str) -> list[str]:
        """Servers of a node that take requests, in any order."""
        async with self._connect() as connection:
            return [row["id"] for row in await connection.fetch(AT, node)]

    async def waits_for(self, run: str) -> str | None:
        """The node that a run without an owner waits for, which has no server; None if it waits for none."""
        return await self._value(WAITS_FOR, run)

    async def waiting(self) -> list[WaitingRun]:
        """All such runs, oldest first."""
        async with self._connect() as connection:
            return [WaitingRun(**dict(row)) for row in await connection.fetch(WAITING)]

    async def hold(self, run: str) -> bool:
        """Be the owner of such a run, to write of it; then release it. False if it waits no more."""
        return bool(await self._value(HOLD, run, self._me()))

    async def end(self, run: str, why: str) -> bool:
        """Let any server end such a run, for this reason. False if it waits no more."""
        ended = bool(await self._value(END, run, why))
        self._on_free()
        return ended

    async def asked_of(self, run: str) -> str | None:
        """Return why a run is to end, as `end` has left it."""
        return await self._value(ASKED, run)

    async def _value(self, sql: str, *values: object) -> str | None:
        async with self._connect() as connection:
            found: str | None = await connection.fetchval(sql, *values)
            return found


class JobRecords:
    """The records of jobs, each kept by the replica that has the job. Every method raises StoreFailed."""

    def __init__(self, connect: Connect, me: Callable[[], str]) -> None:
        self._connect = connect
        self._me = me

    async def keep(self, records: Sequence[JobRecord]) -> None:
        """Write records of this replica's jobs."""
        async with self._connect() as connection:
            await connection.executemany(KEEP, [astuple(one)[:-1] for one in records])  # `away_s` is not kept

    async def drop(self, jobs: Sequence[str]) -> None:
        await self._execute(DROP, list(jobs))

    async def elsewhere(self, principal: str | None = None) -> list[JobRecord]:
        """The jobs of other replicas, oldest first; those of one principal, if it is given."""
        async with self._connect() as connection:
            return [JobRecord(**dict(row)) for row in await connection.fetch(ELSEWHERE, self._me(), principal)]

    async def forget_old(self, older_than_s: float) -> None:
        """Delete records of replicas that have been gone for so long."""
        await self._execute(FORGET_OLD, older_than_s)

    async def _execute(self, sql: str, *values: Any) -> None:
        async with self._connect() as connection:
            await connection.execute(sql, *values)
