"""Homes of people, and the runs that wait for a node without a server, in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg

from app.replicas.nodes import HOME_GONE, NodeState, WaitingRun
from app.replicas.postgres.failures import FAILURES
from app.replicas.postgres.lease import ANNOUNCE
from app.storage.changes import StoreFailed
from app.storage.postgres.connections import CONNECT_S

COMMAND_S = 30.0

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
NAMES = "SELECT node FROM replicas UNION SELECT node FROM homes UNION SELECT node FROM jobs WHERE under_way"
LIST = f"""
    SELECT n.node AS name,
        (SELECT COUNT(*) FROM replicas r WHERE r.node = n.node AND r.state <> 'gone') AS replicas,
        (SELECT COUNT(*) FROM homes h WHERE h.node = n.node) AS people,
        (SELECT COUNT(*) FROM runs WHERE home = n.node AND owner IS NULL AND ended IS NULL) AS waiting,
        (SELECT COUNT(*) FROM jobs j WHERE j.node = n.node AND under_way) AS jobs,
        CASE WHEN {NO_SERVER.format(node="n.node")} THEN (
            SELECT EXTRACT(EPOCH FROM clock_timestamp() - MAX(lease_until))::float8
            FROM replicas r WHERE r.node = n.node
        ) END AS away_s
    FROM ({NAMES}) AS n ORDER BY name
"""
FORGET = (
    f"UPDATE runs SET asked = '{HOME_GONE}', home = '*' WHERE home = $1 AND owner IS NULL AND ended IS NULL",
    "DELETE FROM homes WHERE node = $1",
    "DELETE FROM jobs WHERE node = $1",
    "DELETE FROM replicas WHERE node = $1 AND state = 'gone'",
)
# Held against a server of the node that begins meanwhile.
LOCK = "LOCK TABLE replicas IN SHARE ROW EXCLUSIVE MODE"

Connect = Callable[[], AbstractAsyncContextManager[Any]]
"""A connection of asyncpg, whose failures are StoreFailed."""


class PostgresNodes:
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
        async with self._connect() as connection:
            if (home := await connection.fetchval(HOME, principal)) is None:
                await connection.execute(FIX, principal, self.here)
                home = await connection.fetchval(HOME, principal)
            return str(home or self.here)

    async def replicas_at(self, node: str) -> list[str]:
        async with self._connect() as connection:
            return [row["id"] for row in await connection.fetch(AT, node)]

    async def waits_for(self, run: str) -> str | None:
        return await self._value(WAITS_FOR, run)

    async def waiting(self) -> list[WaitingRun]:
        async with self._connect() as connection:
            return [WaitingRun(**dict(row)) for row in await connection.fetch(WAITING)]

    async def hold(self, run: str) -> bool:
        return bool(await self._value(HOLD, run, self._me()))

    async def end(self, run: str, why: str) -> bool:
        ended = bool(await self._value(END, run, why))
        self._on_free()
        return ended

    async def asked_of(self, run: str) -> str | None:
        return await self._value(ASKED, run)

    async def _value(self, sql: str, *values: object) -> str | None:
        async with self._connect() as connection:
            found: str | None = await connection.fetchval(sql, *values)
            return found


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Any, None]:
    """A connection for `states` and `forget`, to a database that servers have used. Raises StoreFailed."""
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_S, command_timeout=COMMAND_S)
        try:
            yield connection
        finally:
            connection.terminate()
    except FAILURES as error:
        raise StoreFailed(f"The database failed: {error}. Check DRAGOMAN_DATABASE_URL.") from error


async def states(connection: Any) -> list[NodeState]:
    """All nodes that are known, by name."""
    return [NodeState(**dict(row)) for row in await connection.fetch(LIST)]


async def forget(connection: Any, node: str) -> NodeState | None:
    """Give up a node: its runs end, its people are free, its jobs are lost. Return it as it was; None if unknown.

    Nothing happens if it has a server.
    """
    async with connection.transaction():
        await connection.execute(LOCK)
        known = next((one for one in await states(connection) if one.name == node), None)
        if known is not None and not known.replicas:
            for statement in FORGET:
                await connection.execute(statement, node)
            await connection.execute(ANNOUNCE)
        return known
