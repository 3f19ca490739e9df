"""A look at a database of PostgreSQL in a session that may only read: nothing is migrated, no lock is taken."""

from __future__ import annotations

import time

import asyncpg
from msgspec import Struct

from app.storage.changes import StoreFailed
from app.storage.endpoints import EndpointRow
from app.storage.inspection.database_file import StoredConfiguration
from app.storage.mcp import McpServerRow
from app.storage.people.secrets import SecretRow
from app.storage.postgres.connections import MOST, Connection
from app.storage.postgres.database import place_of
from app.storage.postgres.failures import FAILURES, failure
from app.storage.postgres.schema import EXISTS, NEEDED, SCHEMA
from app.storage.runs import RunCounts
from app.storage.sql.configuration import ENDPOINTS, MCP_SERVERS, SECRETS
from app.storage.sql.principals import TOKEN_COUNTS
from app.storage.sql.runs import RUN_COUNTS
from app.storage.tokens import TokenCounts

NEWEST = len(SCHEMA)
CONNECT_S = 4.0
ANSWERS = 10
READ_ONLY = {"application_name": "dragoman doctor", "default_transaction_read_only": "on"}
ABOUT = f"""
    SELECT current_setting('server_version') AS version,
        current_setting('server_version_num')::integer >= {NEEDED} AS fits,
        pg_is_in_recovery() AS reads_only, pg_encoding_to_char(encoding) AS encoding, pg_database_size(oid) AS size,
        (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
        current_setting('max_connections')::integer AS most_connections,
        $1 - extract(epoch FROM clock_timestamp())::float8 AS ahead_s
    FROM pg_database WHERE datname = current_database()
"""
REPLICAS = "SELECT count(*) FROM replicas WHERE lease_until > clock_timestamp()"


class PostgresReport(Struct, frozen=True, kw_only=True):
    """`schema` is 0 for an empty database. `ahead_s` is how far this clock is ahead of the database's."""

    place: str
    version: str
    fits: bool  # of the versions that are needed
    reads_only: bool
    encoding: str
    size: int
    connections: int
    most_connections: int
    ahead_s: float
    answer_s: float
    schema: int
    oldest: int
    replicas: int
    stored: StoredConfiguration

    @property
    def free_connections(self) -> int:
        return self.most_connections - self.connections

    @property
    def needed_connections(self) -> int:
        """Of one server."""
        return MOST


async def inspect_postgres(url: str) -> PostgresReport:
    """Raises StoreFailed."""
    place = place_of(url)
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_S, command_timeout=CONNECT_S, server_settings=READ_ONLY)
        try:
            return await _report(connection, place)
        finally:
            await connection.close(timeout=1)
    except FAILURES as error:
        raise failure(error, place) from error


async def _report(connection: Connection, place: str) -> PostgresReport:
    about = await connection.fetchrow(ABOUT, time.time())
    if about is None:
        raise StoreFailed(f"The database {place} says nothing of itself.")
    schema = oldest = replicas = 0
    stored = StoredConfiguration()
    if await connection.fetchval(EXISTS):
        schema, oldest = await connection.fetchrow("SELECT version, oldest FROM dragoman_schema") or (0, 0)
    if schema >= NEWEST:
        replicas, stored = await connection.fetchval(REPLICAS), await _stored(connection)
    return PostgresReport(
        **dict(about),
        place=place,
        answer_s=await _answer_s(connection),
        schema=schema,
        oldest=oldest,
        replicas=replicas,
        stored=stored,
    )


async def _answer_s(connection: Connection) -> float:
    """Return the time of the fastest of some answers: what holds one up is not how far away the database is."""
    times = list[float]()
    for _ in range(ANSWERS):
        begun = time.perf_counter()
        await connection.execute("SELECT 1")
        times.append(time.perf_counter() - begun)
    return min(times)


async def _stored(connection: Connection) -> StoredConfiguration:
    endpoints = [EndpointRow(*row) for row in await connection.fetch(ENDPOINTS.sql)]
    servers = [McpServerRow(*row) for row in await connection.fetch(MCP_SERVERS.sql)]
    secrets = [SecretRow(*row) for row in await connection.fetch(SECRETS.sql)]
    counts = await connection.fetchrow(TOKEN_COUNTS.sql.replace("?", "$1"), time.time())
    ended = await connection.fetchrow(RUN_COUNTS.sql)
    runs = RunCounts(*ended) if ended else RunCounts()
    return StoredConfiguration(
        tuple(endpoints), tuple(servers), tuple(secrets), tokens=TokenCounts(*(counts or (0, 0, 0))), runs=runs
    )
