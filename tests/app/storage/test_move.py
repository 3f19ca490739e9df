"""`dragoman db move`: everything in SQLite is in PostgreSQL afterwards, and back, or nothing is."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.config.folders import lock_data_dir
from app.core.events import TextDelta, encode
from app.replicas.postgres.claims import claim
from app.storage.changes import StoreFailed
from app.storage.postgres.schema import SHARED
from app.storage.postgres.store import PostgresStore
from app.storage.runs import ALL, EventRow
from app.storage.sqlite.recent_events import PACKED, row_of
from app.storage.sqlite.schema import SCHEMA
from app.storage.sqlite.store import SQLiteStore
from app.storage.state import RESTORED
from app.storage.transfer import postgres_side
from app.storage.transfer.move import Moved, MovedTable, move_to_postgres, move_to_sqlite
from app.storage.transfer.sqlite_side import OF_NO_RUN
from app.storage.transfer.tables import EVENTS, MOVED, OWN, tables_of
from tests.support.databases.earlier import SESSION, made, path_of, tables
from tests.support.databases.postgres import Cluster
from tests.support.nightly import at_night
from tests.support.server.dragoman_process import run_dragoman, started

pytestmark = pytest.mark.anyio
LIMIT_S = 60
NEWEST = len(SCHEMA)
Rows = dict[str, list[dict[str, Any]]]
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def new_file(path: Path, version: int = NEWEST) -> sqlite3.Connection:
    """A database of that version with rows in every table."""
    database = sqlite3.connect(path)
    if version < NEWEST:
        database.executescript(path_of(version).read_text())
    else:
        with closing(made(version)) as source:
            source.backup(database)
    return database


def rows_in(path: Path) -> Rows:
    """All rows of a file in which no batch waits; events each on its own."""
    with closing(sqlite3.connect(path)) as database:
        found = {
            name: [dict(zip(columns, row, strict=True)) for row in database.execute(f"SELECT * FROM {name}")]
            for name, columns in tables(database).items()
        }
    whole = list[dict[str, Any]]()
    for row in found[EVENTS]:
        lines = str(row["data"]).split("\n") if row["type"] == PACKED else []
        whole += [
            {"run": e.run, "seq": e.seq, "type": e.type, "data": e.data, "parts": None} for e in map(row_of, lines)
        ]
        whole += [] if lines else [row]
    found[EVENTS] = whole
    found["state"] = [row for row in found["state"] if row["name"] != RESTORED]
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


async def there_and_back(file: Path, url: str) -> tuple[Moved, Moved, Path]:
    back = file.with_name("back.db")
    async with asyncio.timeout(LIMIT_S):
        return await move_to_postgres(file, url), await move_to_sqlite(url, back), back


def hashes(moved: Moved) -> list[tuple[str, int, str]]:
    return [(table.name, table.rows, table.hash) for table in moved.tables]


@pytest.mark.parametrize("version", at_night(range(1, NEWEST + 1), (1, 9, NEWEST)))
async def test_each_version_moves_there_and_back(version: int, tmp_path: Path, postgres: Cluster) -> None:
    file = tmp_path / "dragoman.db"
    new_file(file, version).close()
    there, back, copy = await there_and_back(file, postgres.database())
    assert hashes(there) == hashes(back)
    assert [table.name for table in there.tables] == list(MOVED)
    assert all(table.rows for table in there.tables if table.name in tables(made(version)))
    assert (there.runs, back.left) == (1, 0)
    before, after = rows_in(file), rows_in(copy)
    before[EVENTS] = [row for row in before[EVENTS] if row["run"] != "run_2"]  # which is in no other table
    assert after == before
    with closing(sqlite3.connect(copy)) as database, closing(made(NEWEST)) as new:
        schema = "SELECT name, sql FROM sqlite_schema ORDER BY name"
        assert database.execute(schema).fetchall() == new.execute(schema).fetchall()


async def test_what_is_derived_is_made_and_what_comes_is_numbered_behind(tmp_path: Path, postgres: Cluster) -> None:
    """Searches, the calls of events, and ids that count on; in SQLite the index of words, too."""
    file, url = tmp_path / "dragoman.db", postgres.database()
    with closing(new_file(file)) as database:
        database.execute("INSERT INTO events VALUES ('run_1', 5, 'tool.started', '{\"call\":\"call_1\"}', NULL)")
        database.commit()
    assert (await move_to_postgres(file, url)).left == 1
    store = await PostgresStore.open(url)
    assert [at for at, _ in await store.search(SESSION, "done", 5)] == [1]
    assert [event.seq for event in await store.call_events("run_1", "call_1")] == [5]
    next_text = EventRow("run_1", 6, TextDelta.type, encode(TextDelta("d")))
    await store.write([next_text])
    assert (await store.events("run_1", 4, ALL))[-1] == next_text
    assert (await store._all("SELECT role, untrusted FROM messages ORDER BY position"))[0][0] == "user"
    await store._all("INSERT INTO audit (at, principal, action, decision, why, by) VALUES (1, '', '', '', '', '')")
    assert [row[0] for row in await store._all("SELECT number FROM audit ORDER BY number")] == [7, 8]
    await store.close()
    back = tmp_path / "back.db"
    await move_to_sqlite(url, back)
    sqlite = await SQLiteStore.open(back)
    assert [at for at, _ in await sqlite.search(SESSION, "done", 5)] == [1]
    assert (await sqlite.events("run_1", 4, ALL))[-1] == next_text
    assert len(await sqlite._all("SELECT 1 FROM memory_words WHERE memory_words MATCH 'words : gruße'")) == 1
    await sqlite.close()


async def test_runs_go_on_in_one_place_only(tmp_path: Path, postgres: Cluster) -> None:
    """One that was under way waits for any server in PostgreSQL, and is not continued in the file."""
    file, url = tmp_path / "dragoman.db", postgres.database()
    with closing(new_file(file)) as database:
        values = "'ses_1', 'ann', 'm', 'running', 3.5"
        database.execute(f"INSERT INTO runs (id, session, principal, model, state, created) VALUES ('run_9', {values})")
        database.commit()
    await move_to_postgres(file, url)
    store = await PostgresStore.open(url)
    async with store.connections.one() as connection:
        await connection.execute("INSERT INTO replicas (id, node, version, lease_until) VALUES ('me', 'n', '1', now())")
        assert await claim(connection, "me", "n") == ["run_9"]
    assert await store.state(RESTORED) is None
    await store.close()
    left = await SQLiteStore.open(file)
    assert float(await left.state(RESTORED) or 0) > 1e9
    await left.close()


async def test_every_column_is_moved_or_made(postgres: Cluster) -> None:
    """A new one on one side only is noticed."""
    store = await PostgresStore.open(postgres.database())
    async with store.connections.one() as connection:
        with closing(made(NEWEST)) as database:
            found = await tables_of(database, connection)
            for table in found:
                assert set(tables(database)[table.name]) <= set(table.columns), table.name
                listed = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0"
                names = {row[0] for row in await connection.fetch(listed, table.name)}
                assert names == set(table.columns) | set(OWN.get(table.name, ())), table.name
        kept = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        theirs = {row[0] for row in await connection.fetch(kept)}
    await store.close()
    assert theirs == {*MOVED, *SHARED, "dragoman_schema"}


TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from("\0\t\n\r\\'\"N."), max_size=8)
VALUES = {
    "TEXT": TEXTS,
    "INTEGER": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE PRECISION": st.floats(allow_nan=False) | st.integers(-(2**53), 2**53),
    "BLOB": st.binary(max_size=40),
}
VALUES["REAL"] = VALUES["DOUBLE PRECISION"]
FLAGS = frozenset(
    {"enabled", "tainted", "untrusted", "everyone", "reported", "at_start", "forced", "pinned", "archived", "decides"}
    | {"temporary", "members"}
)
UNIQUE = frozenset({("memories", "id"), ("shares", "sha256")})  # beside the keys
NULLS = st.sampled_from([True, False, False])


def row_of_table(draw: st.DrawFn, table: str, columns: list[tuple[Any, ...]], number: int) -> list[Any]:
    """Values for the columns of `PRAGMA table_info`; those of the key are unique."""
    row = list[Any]()
    for _, name, kind, required, _, key in columns:
        if key and kind == "INTEGER":
            row.append(number)
        elif name == "owner" and table == "memories":
            row.append(f"{number}")  # unique with the digest
        elif (table, name) == ("runs", "id"):
            row.append(f"run_{number}")  # the events of a run are packed as lines, each with its id
        elif key or (table, name) in UNIQUE:
            row.append(f"{draw(TEXTS)}{number}".replace("\0", ""))
        elif not required and draw(NULLS):
            row.append(None)
        elif name in FLAGS:
            row.append(draw(st.integers(0, 1)))
        elif table == "runs" and name == "state":
            row.append("answered")
        else:
            row.append(draw(VALUES[kind]))
    return row


@st.composite
def databases(draw: st.DrawFn) -> dict[str, list[list[Any]]]:
    with closing(sqlite3.connect(":memory:")) as database:
        for script in SCHEMA:
            database.executescript(script)
        columns = {name: database.execute(f"PRAGMA table_info({name})").fetchall() for name in MOVED}
    numbers = count(1)
    rows = {
        name: [row_of_table(draw, name, columns[name], next(numbers)) for _ in range(draw(st.integers(0, 3)))]
        for name in MOVED
    }
    for run in rows["runs"]:
        size = draw(st.integers(0, 40))
        texts = [draw(st.text(st.characters(min_codepoint=32, codec="utf-8"), max_size=3)) for _ in range(3)]
        rows[EVENTS] += [
            [run[0], seq, TextDelta.type, encode(TextDelta(texts[seq % 3])), None] for seq in range(1, size)
        ]
    return rows


@settings(max_examples=at_night(100, 5), suppress_health_check=list(HealthCheck), deadline=None)
@given(rows=databases())
def test_any_rows_move_there_and_back(postgres: Cluster, rows: dict[str, list[list[Any]]]) -> None:
    """Their order, too. Texts that PostgreSQL cannot hold are counted, and differ in nothing else."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "dragoman.db"
        with closing(sqlite3.connect(file)) as database:
            for script in SCHEMA:
                database.executescript(script)
            triggers = database.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()
            for (name,) in triggers:
                if name not in ("message_kept", "memory_kept"):
                    database.execute(f"DROP TRIGGER {name}")
            for table, values in rows.items():
                for row in values:
                    database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
            database.execute(f"PRAGMA user_version = {len(SCHEMA)}")
            database.commit()
            [(orphans,)] = database.execute(OF_NO_RUN)
        there, back, copy = asyncio.run(there_and_back(file, postgres.database()))
        before, after = rows_in(file), rows_in(copy)
        runs = {row["id"] for row in before["runs"]}
        before[EVENTS] = [row for row in before[EVENTS] if row["run"] in runs]
        replaced = Counter[str]()
        for table, found in before.items():
            for one in found:
                for name, value in one.items():
                    if isinstance(value, str) and "\0" in value:
                        replaced[table] += 1
                        one[name] = value.replace("\0", "\ufffd")
            found.sort(key=repr)
    assert after == before
    assert hashes(there) == hashes(back)
    assert {table.name: table.replaced for table in there.tables if table.replaced} == replaced
    assert there.left == orphans


async def test_texts_that_are_none_are_replaced_and_values_that_fit_nowhere_refused(
    tmp_path: Path, postgres: Cluster
) -> None:
    file, url = tmp_path / "dragoman.db", postgres.database()
    with closing(new_file(file)) as database:
        database.execute("UPDATE sessions SET title = CAST(x'61ED A080 00' AS TEXT)".replace(" A080 00'", "A08000'"))
        database.commit()
        [sessions, *_] = (await move_to_postgres(file, url)).tables
        assert isinstance(sessions, MovedTable) and sessions.replaced == 2
        database.execute("UPDATE sessions SET title = x'00ff'")
        database.commit()
        with pytest.raises(StoreFailed, match=r"The row \{'id': 'ses_1'\} of sessions has a value"):
            await move_to_postgres(file, empty := postgres.database())
    assert postgres.sql("SELECT title FROM sessions", url.rpartition("/")[2]) == "a" + "\ufffd" * 4
    assert postgres.sql("SELECT count(*) FROM sessions", empty.rpartition("/")[2]) == "0"


async def test_a_copy_that_differs_is_discarded(
    tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, url = tmp_path / "dragoman.db", postgres.database()
    new_file(file).close()
    honest = postgres_side.copied
    monkeypatch.setattr(postgres_side, "copied", lambda value: honest("{}" if value == '{"text":"ab"}' else value))
    with pytest.raises(StoreFailed, match=r"The copy of events differs \(3 rows became 3, first in run number 1\)"):
        await move_to_postgres(file, url)
    assert postgres.sql("SELECT count(*) FROM sessions", url.rpartition("/")[2]) == "0"
    monkeypatch.undo()
    await move_to_postgres(file, url)


async def test_a_database_that_is_used_is_refused(tmp_path: Path, postgres: Cluster) -> None:
    file, url = tmp_path / "dragoman.db", postgres.database()
    new_file(file).close()
    lease = "clock_timestamp() + interval '1 minute'"
    postgres.sql(
        f"INSERT INTO replicas (id, node, version, lease_until) VALUES ('r', 'n', '1', {lease})",
        name := url.rpartition("/")[2],
    )
    for move in (move_to_postgres(file, url), move_to_sqlite(url, tmp_path / "back.db")):
        with pytest.raises(StoreFailed, match=f"1 servers use .*{name}. Stop them first"):
            await move
    postgres.sql("DELETE FROM replicas", name)
    await move_to_postgres(file, url)
    with pytest.raises(StoreFailed, match="has rows already, in: sessions, runs, events"):
        await move_to_postgres(file, url)
    with pytest.raises(StoreFailed, match="exists already"):
        await move_to_sqlite(url, file)
    assert not (tmp_path / "back.db").exists() and not (tmp_path / "back.db.part").exists()


async def test_the_command_moves_both_ways_and_survives_a_kill(tmp_path: Path, postgres: Cluster) -> None:
    """Killed while it copies, it leaves nothing in the target."""
    data, url = tmp_path / "data", postgres.database()
    data.mkdir(mode=0o700)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DRAGOMAN_DATA_DIR": str(data)}
    missing = run_dragoman("db", "move", url, environ=environ)
    assert (missing.returncode, "There is no database" in missing.stderr) == (1, True)
    new_file(data / "dragoman.db").close()
    with lock_data_dir(data):
        locked = run_dragoman("db", "move", url, environ=environ)
    assert (locked.returncode, "Another dragoman uses" in locked.stderr) == (1, True)
    unset = run_dragoman("db", "move", "back.db", environ=environ)
    assert (unset.returncode, "Set DRAGOMAN_DATABASE_URL" in unset.stderr) == (1, True)
    store = await PostgresStore.open(url)
    async with asyncio.timeout(LIMIT_S), store.connections.one() as connection:
        async with connection.transaction(), store.connections.one() as other:
            await connection.execute("LOCK TABLE helpers IN SHARE MODE")  # the last that is copied
            async with started("db", "move", url, environ=environ) as process:
                while not await other.fetchval(WAITS):
                    assert process.returncode is None
                process.kill()
                await process.wait()
        while await connection.fetchval("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY%'"):
            pass
        assert await connection.fetchval("SELECT count(*) FROM sessions") == 0
    await store.close()
    moved = run_dragoman("db", "move", url, environ=environ)
    assert (moved.returncode, "Left behind: 1 events" in moved.stderr) == (0, True), moved.stderr
    assert "1 runs compared event by event" in moved.stdout and "Set DRAGOMAN_DATABASE_URL" in moved.stdout
    file = tmp_path / "back.db"
    back = run_dragoman("db", "move", str(file), environ=environ | {"DRAGOMAN_DATABASE_URL": url})
    assert (back.returncode, back.stderr, file.stat().st_mode & 0o077) == (0, "", 0)
    table = [line for line in moved.stdout.splitlines() if line.count("  ") and not line.startswith("state ")]
    assert set(table) <= set(back.stdout.splitlines())
