"""Everything in SQLite into an empty database of PostgreSQL, and back, compared row by row before it counts.

No server may use either. What is written becomes visible in one step, at the end, and what it was read from stays,
marked so that the runs which were under way there are not continued in both places.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path

from msgspec import Struct

from app.storage.changes import StoreFailed
from app.storage.postgres.store import PostgresStore
from app.storage.state import RESTORED
from app.storage.transfer.backup import MODE, UNFINISHED, failures_named, sync_folder
from app.storage.transfer.fingerprints import Fingerprint, difference
from app.storage.transfer.postgres_side import PostgresSide, postgres_side
from app.storage.transfer.sqlite_side import SqliteSide, existing, new, settle
from app.storage.transfer.tables import EVENTS, Table, Values, tables_of

NOT_MOVED = "The database {path} cannot be moved"
MARK = "INSERT INTO state (name, value) VALUES ({}, {}) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class MovedTable(Struct, frozen=True):
    """`hash` is that of the rows in both databases; `replaced` values had a NUL, or were no text."""

    name: str
    rows: int
    hash: str
    replaced: int = 0


class Moved(Struct, frozen=True):
    """`left`: rows of events that belong to no run. `runs`: those with events, whose hashes were compared."""

    tables: list[MovedTable]
    runs: int
    left: int = 0


async def move_to_postgres(database: Path, url: str) -> Moved:
    """The caller holds the lock of the data directory. Raises StoreFailed, and then the target is empty."""
    await settle(database)
    await (await PostgresStore.open(url)).close()  # makes the tables
    with failures_named(NOT_MOVED.format(path=database)):
        with existing(database) as source:
            async with postgres_side(url) as target:
                tables = await tables_of(source.database, target.connection)
                await target.refuse_rows(tables)
                moved = await _copy_to_postgres(source, target, tables)
        with closing(sqlite3.connect(database)) as left:
            left.execute(MARK.format("?", "?"), (RESTORED, str(time.time())))
            left.commit()
    return moved


async def _copy_to_postgres(source: SqliteSide, target: PostgresSide, tables: list[Table]) -> Moved:
    replaced, prints = Counter[str](), dict[str, Fingerprint]()
    async with target.without_triggers():
        for table in tables:
            prints[table.name] = fingerprint = Fingerprint(by_run=table.name == EVENTS)
            await target.write(table, _added(source.rows(table, replaced), fingerprint))
    for table in tables:
        copied = Fingerprint(by_run=table.name == EVENTS)
        async with aclosing(target.rows(table, Counter())) as pages:
            async for rows in pages:
                copied.add_all(rows)
        _compare(table, prints[table.name], copied)
    await target.number_on()
    await target.connection.execute(f"ANALYZE {', '.join(prints)}")
    return _moved(prints, replaced, source.events_of_no_run())


async def move_to_sqlite(url: str, file: Path) -> Moved:
    """Write a new file. Raises StoreFailed, and then there is none."""
    if file.exists():  # noqa: ASYNC240
        raise StoreFailed(f"{file} exists already. Name a new file: moving replaces nothing.")
    await (await PostgresStore.open(url)).close()
    part = file.with_name(file.name + UNFINISHED)
    with failures_named(NOT_MOVED.format(path=file)):
        part.unlink(missing_ok=True)  # of a move that was killed
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
        try:
            async with postgres_side(url) as source:
                with new(part) as target:
                    moved = await _copy_to_sqlite(source, target)
                with part.open("rb") as written:
                    os.fsync(written.fileno())
                await source.connection.execute(MARK.format("$1", "$2"), RESTORED, str(time.time()))
            part.replace(file)
            sync_folder(file.parent)
        finally:
            part.unlink(missing_ok=True)
    return moved


async def _copy_to_sqlite(source: PostgresSide, target: SqliteSide) -> Moved:
    replaced, prints = Counter[str](), dict[str, Fingerprint]()
    tables = await tables_of(target.database, source.connection)
    with target.without_triggers():
        for table in tables:
            prints[table.name] = fingerprint = Fingerprint(by_run=table.name == EVENTS)
            async with aclosing(source.rows(table, replaced)) as pages:
                async for rows in pages:
                    fingerprint.add_all(rows)
                    target.write(table, rows)
    for table in tables:
        copied = Fingerprint(by_run=table.name == EVENTS)
        copied.add_all(target.rows(table, Counter()))
        _compare(table, prints[table.name], copied)
    return _moved(prints, replaced, 0)


def _added(rows: Iterator[Values], fingerprint: Fingerprint) -> Iterator[Values]:
    for row in rows:
        fingerprint.add(row)
        yield row


def _compare(table: Table, read: Fingerprint, copied: Fingerprint) -> None:
    if found := difference(read, copied):
        run = f", first in run number {found.run}" if found.run is not None else ""
        counts = f"{found.rows[0]:,} rows became {found.rows[1]:,}{run}"
        raise StoreFailed(f"The copy of {table.name} differs ({counts}), and is discarded. Please report this.")


def _moved(prints: dict[str, Fingerprint], replaced: Counter[str], left: int) -> Moved:
    tables = [MovedTable(name, one.rows, one.hash, replaced[name]) for name, one in prints.items()]
    return Moved(tables, prints[EVENTS].run_count, left)
