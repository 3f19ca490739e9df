"""The nodes of a database, as the command line lists them and gives one up."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from app.replicas.nodes import HOME_GONE, NO_SERVER, NodeState
from app.replicas.postgres.failures import FAILURES
from app.replicas.postgres.lease import ANNOUNCE
from app.storage.changes import StoreFailed
from app.storage.postgres.connections import CONNECT_S

COMMAND_S = 30.0

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
