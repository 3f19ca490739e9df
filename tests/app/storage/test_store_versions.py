"""A database of every earlier version opens, and nothing that it holds is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from app.storage.sqlite.schema import SCHEMA, TABLES
from app.storage.sqlite.store import SQLiteStore
from tests.support.databases.earlier import FOLDER, SESSION, made, path_of, schema, tables

pytestmark = pytest.mark.anyio
EARLIER = range(1, len(SCHEMA))
Rows = dict[str, list[dict[str, Any]]]


@asynccontextmanager
async def closed(store: SQLiteStore) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await store.close()


def rows_of(database: sqlite3.Connection) -> Rows:
    return {
        table: [
            dict(zip(columns, row, strict=True))
            for row in database.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY rowid")
        ]
        for table, columns in tables(database).items()
    }


def load(version: int, path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(path_of(version).read_text())
        return rows_of(database)


def test_every_earlier_version_has_its_database() -> None:
    """`python -m tests.support.databases.earlier N` makes the one of version N, once."""
    assert {path.name for path in FOLDER.iterdir()} == {path_of(version).name for version in EARLIER}


@pytest.mark.parametrize("version", EARLIER)
def test_what_a_version_was_made_of_has_not_changed(version: int, tmp_path: Path) -> None:
    """A file of the schema that was released is never changed: databases of its version would differ."""
    with closing(made(version)) as now, closing(sqlite3.connect(tmp_path / "then.db")) as then:
        then.executescript(path_of(version).read_text())
        assert schema(then) == schema(now)


@pytest.mark.parametrize("version", EARLIER)
async def test_a_database_of_an_earlier_version_keeps_every_row(version: int, tmp_path: Path) -> None:
    path = tmp_path / "dragoman.db"
    before = load(version, path)
    assert all(before.values()), "the fixture has a table without rows"
    async with asyncio.timeout(30):
        store = await SQLiteStore.open(path)
        async with closed(store):
            assert [row.id for row in await store.sessions("ann", 10)] == [SESSION]
            assert [message.text for message in await store.messages(SESSION)] == ["Grüße, 你好", "Done."]
            assert [at for at, _ in await store.search(SESSION, "done", 5)] == [1]
            assert [row.name for row in await store.tokens()] == ["ann", "bob"]
            await store.check()
            kept = await store.grants(SESSION)
            assert len(kept) == len(before.get("grants", ()))
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (len(SCHEMA),)
        after = rows_of(database)
    assert after.keys() == set(TABLES)
    for table, rows in before.items():
        assert [{name: row[name] for name in old} for row, old in zip(after[table], rows, strict=True)] == rows, table
    with closing(made(len(SCHEMA))) as new, closing(sqlite3.connect(path)) as database:
        assert sorted(normal(schema(database))) == sorted(normal(schema(new)))


async def test_grants_of_before_say_what_they_were_given_for(tmp_path: Path) -> None:
    load(8, tmp_path / "dragoman.db")
    store = await SQLiteStore.open(tmp_path / "dragoman.db")
    async with closed(store):
        exact, pattern = [row for row in await store.grants(SESSION) if not row.hosts]
    assert exact.arguments == '{"command":"ls"}' and exact.by == "ann" and exact.expires is None and not exact.tainted
    assert pattern.pattern == '{"path":"notes/*"}' and pattern.arguments is None
    assert len({exact.id, pattern.id}) == 2


def normal(statements: list[str]) -> list[str]:
    return [" ".join(statement.replace('"', "").split()) for statement in statements]
