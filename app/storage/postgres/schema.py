"""The schema of PostgreSQL, a file per version, and how a database gets those that it lacks.

A version only adds: while servers are upgraded one after the other, those of the version before use the same database.
`oldest` is the version that a program must have at least; it rises only where that cannot be kept.
"""

from __future__ import annotations

from pathlib import Path

import asyncpg

from app.storage.changes import StoreFailed
from app.storage.postgres.connections import Connection
from app.storage.postgres.write_function import WriteFunction
from app.storage.sqlite.schema import TABLES as SQLITE_TABLES

_FILES = sorted(Path(__file__).parent.glob("schema_*.sql"), key=lambda path: int(path.stem.partition("_")[2]))
SCHEMA = tuple(path.read_text() for path in _FILES)
OLDEST = 1  # the version that programs must have, which use this schema
SHARED = ("replicas", "homes", "jobs", "sealed", "windows", "held", "answers", "written")  # between servers
TABLES = (*(table for table in SQLITE_TABLES if table != "event_batches"), *SHARED)
VERSIONS = """
    CREATE TABLE IF NOT EXISTS dragoman_schema (
        one BOOLEAN PRIMARY KEY DEFAULT true CHECK (one), version INTEGER NOT NULL, oldest INTEGER NOT NULL
    );
    INSERT INTO dragoman_schema (version, oldest) VALUES (0, 0) ON CONFLICT DO NOTHING
"""
WAIT_S = 2  # for a table that other servers use, which wait behind this one meanwhile
PATIENCE = f"SET LOCAL lock_timeout = '{WAIT_S}s'"
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('dragoman schema', 0))"
EXISTS = "SELECT to_regclass('dragoman_schema') IS NOT NULL"
NEEDED = 140000  # server_version_num of PostgreSQL 14


async def migrate(connection: Connection, place: str, write: WriteFunction) -> None:
    """Bring the database up to date. Raises StoreFailed where it is too old or too new."""
    number = int(await connection.fetchval("SHOW server_version_num"))
    if number < NEEDED:
        raise StoreFailed(f"The server of {place} is PostgreSQL {number // 10_000}. Upgrade it to 14 or newer.")
    if await connection.fetchval(EXISTS):  # as a rule there is nothing to do, and nothing to wait for
        version = await _version(connection, place)
        if version >= len(SCHEMA) and await connection.fetchval("SELECT to_regproc($1) IS NOT NULL", write.name):
            return
    async with connection.transaction():
        await connection.execute(LOCK)
        await connection.execute(VERSIONS)
        await connection.execute(PATIENCE)
        version = await _version(connection, place)
        for script in SCHEMA[version:]:
            await connection.execute(script)
        if version < len(SCHEMA):
            await connection.execute("UPDATE dragoman_schema SET version = $1, oldest = $2", len(SCHEMA), OLDEST)
        if not await connection.fetchval("SELECT to_regproc($1) IS NOT NULL", write.name):
            await connection.execute(write.sql)


async def _version(connection: Connection, place: str) -> int:
    row = await connection.fetchrow("SELECT version, oldest FROM dragoman_schema")
    assert isinstance(row, asyncpg.Record)
    if row["oldest"] > len(SCHEMA):
        made = f"was made by a newer dragoman (schema {row['version']}), which this one cannot use"
        raise StoreFailed(f"The database {place} {made}. Upgrade this one.")
    return int(row["version"])
