"""A rolling upgrade: servers of two versions on one PostgreSQL, while the newer one adds to the schema."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from itertools import count

import asyncpg
import pytest

from app.storage.changes import StoreFailed
from app.storage.postgres import database, schema
from app.storage.postgres.statements import STATEMENTS, WRITE
from app.storage.postgres.store import PostgresStore
from app.storage.postgres.write_function import Statement, WriteFunction
from app.storage.runs import ALL, RunEnded, RunRow
from app.storage.sessions import SessionRow
from app.storage.transfer.tables import COLUMNS, OWN, RUNS
from tests.support.databases.earlier import path_of, tables
from tests.support.databases.postgres import Cluster
from tests.support.databases.sqlite import text_row

pytestmark = pytest.mark.anyio
LIMIT_S = 60
# What the next version may do: new tables, columns with a default, indexes.
ADDS = """
    ALTER TABLE sessions ADD COLUMN colour TEXT COLLATE "C" NOT NULL DEFAULT 'blue';
    ALTER TABLE runs ADD COLUMN weight DOUBLE PRECISION;
    ALTER TABLE events ADD COLUMN origin TEXT;
    CREATE TABLE colours (name TEXT PRIMARY KEY);
    CREATE INDEX sessions_by_colour ON sessions (colour);
"""
_ENDED = STATEMENTS[RunEnded]
NEXT = WriteFunction(
    STATEMENTS | {RunEnded: Statement(_ENDED.sql.replace("SET ", "SET weight = 1.5, ", 1), _ENDED.types, _ENDED.values)}
)
HOLDS = "LOCK TABLE events IN ROW EXCLUSIVE MODE"
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class NextStore(PostgresStore):
    """The store of the next version."""

    statements = NEXT


def begin_next_version(monkeypatch: pytest.MonkeyPatch, *, oldest: int = schema.OLDEST) -> None:
    monkeypatch.setattr(schema, "SCHEMA", (*schema.SCHEMA, ADDS))
    monkeypatch.setattr(schema, "OLDEST", oldest)


async def begin_run(store: PostgresStore, name: str) -> None:
    await store.write(
        [SessionRow(f"ses_{name}", "ann", 1.0, name), RunRow(name, f"ses_{name}", "ann", "m", "running", 2.0)]
    )


async def test_a_server_goes_on_writing_while_the_next_version_changes_the_schema(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No write fails or is lost, each version has its own statements, and a server of the old one may start again."""
    url = postgres.database()
    async with asyncio.timeout(LIMIT_S):
        old = await PostgresStore.open(url)
        await begin_run(old, "old")
        written, enough = 0, asyncio.Event()

        async def write_on() -> None:
            nonlocal written
            for written in count(1):
                await old.write([text_row("old", written)])
                assert (await old.last_seq("old")) == written
                if enough.is_set():
                    return

        writing = asyncio.create_task(write_on())
        with monkeypatch.context() as changed:
            begin_next_version(changed)
            new = await NextStore.open(url)
            await begin_run(new, "new")
            await new.write([text_row("new", 1), RunEnded("new", "answered", 3.0)])
            enough.set()
            await writing
        await old.write([RunEnded("old", "answered", 3.0)])  # by a version that does not know the column
        again = await PostgresStore.open(url)
        assert [event.seq for event in await again.events("old", 0, ALL)] == list(range(1, written + 1))
        assert await new.events("old", 0, ALL) == await old.events("old", 0, ALL)
        assert await again.events("new", 0, ALL) == [text_row("new", 1)]
        weights = (
            "SELECT runs.id, weight, colour FROM runs JOIN sessions ON sessions.id = runs.session ORDER BY runs.id"
        )
        assert [tuple(row) for row in await new._all(weights)] == [("new", 1.5, "blue"), ("old", None, "blue")]
        functions = {row[0] for row in await new._all("SELECT proname FROM pg_proc WHERE proname ~ '^write_'")}
        assert functions == {WRITE.name, NEXT.name}
        for store in (old, new, again):
            await store.close()


async def test_an_upgrade_waits_for_a_table_in_short_tries(postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long transaction keeps the upgrade out, which lets all others pass between its tries."""
    monkeypatch.setattr(schema, "PATIENCE", "SET LOCAL lock_timeout = '50ms'")
    url = postgres.database()
    async with asyncio.timeout(LIMIT_S):
        old = await PostgresStore.open(url)
        await begin_run(old, "old")
        async with old.connections.one() as connection, old.connections.one() as other:
            with monkeypatch.context() as changed:
                begin_next_version(changed)
                async with connection.transaction():
                    await connection.execute(HOLDS)
                    with pytest.raises(StoreFailed, match="Another program holds that table"):
                        await NextStore.open(url)
                    await old.write([text_row("old", 1)])
                    changed.setattr(database, "MOST_CLASHES", 1_000)
                    opening = asyncio.create_task(NextStore.open(url))
                    while not await other.fetchval(WAITS):
                        assert not opening.done()
                    await old.write([text_row("old", 2)])
                new = await opening
        assert [event.seq for event in await new.events("old", 0, ALL)] == [1, 2]
        await new.close()
        await old.close()


async def test_an_old_version_is_refused_only_where_the_schema_asks_for_it(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.database()
    async with asyncio.timeout(LIMIT_S):
        with monkeypatch.context() as changed:
            begin_next_version(changed, oldest=len(schema.SCHEMA) + 1)
            await (await NextStore.open(url)).close()
        newer = rf"was made by a newer dragoman \(schema {len(schema.SCHEMA) + 1}\), .* Upgrade this one"
        with pytest.raises(StoreFailed, match=newer):
            await PostgresStore.open(url)


async def test_a_database_of_the_first_schema_gets_the_rest_and_keeps_its_rows(postgres: Cluster) -> None:
    postgres.sql("CREATE DATABASE first_schema")
    url = postgres.url("first_schema")
    async with asyncio.timeout(LIMIT_S):
        connection = await asyncpg.connect(url)
        await connection.execute(schema.VERSIONS)
        await connection.execute(schema.SCHEMA[0])
        await connection.execute("UPDATE dragoman_schema SET version = 1")
        with closing(sqlite3.connect(":memory:")) as database:
            database.executescript(path_of(17).read_text())
            before = {table: await fill(connection, database, table) for table in tables(database)}
        store = await PostgresStore.open(url)
        assert [(row.pinned, row.archived, row.folder) for row in await store.sessions("ann", 10)] == [(0, 0, "")]
        assert [(row.name, row.version) for row in await store.tokens()] == [("ann", 0), ("bob", 0)]
        assert await store.branch("ses_1") is None and await store.list_revision("ann") == 0
        await store.close()
        rows = {table: await connection.fetchval(f"SELECT count(*) FROM {table}") for table in before if before[table]}
        assert rows == {table: count for table, count in before.items() if count} and len(rows) > 30
        await connection.close()


async def fill(connection: asyncpg.Connection, database: sqlite3.Connection, table: str) -> int:
    """Put the rows of a fixture into the table, where both have the columns; return how many."""
    listed = await connection.fetch(COLUMNS, table)
    kinds = {name: kind for name, kind in listed if name in tables(database)[table]}
    if not kinds or (table in OWN and table != RUNS):  # those have columns of PostgreSQL's own
        return 0
    rows = database.execute(f"SELECT {', '.join(kinds)} FROM {table}").fetchall()
    marks = ", ".join(f"${number}" for number in range(1, len(kinds) + 1))
    for row in rows:
        values = [bool(value) if kind == "boolean" else value for kind, value in zip(kinds.values(), row, strict=True)]
        await connection.execute(f"INSERT INTO {table} ({', '.join(kinds)}) VALUES ({marks})", *values)
    return len(rows)
