"""The rows of an SQLite file, read and written by one connection that nothing else uses."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import groupby
from pathlib import Path

from app.storage.runs import EventRow
from app.storage.sqlite.database import INSERT_EVENT
from app.storage.sqlite.recent_events import PACKED, packed, row_of
from app.storage.sqlite.schema import SCHEMA, TABLES
from app.storage.sqlite.store import SQLiteStore
from app.storage.transfer.tables import EVENTS, Conversion, Table, Values

# They make an index; the others would change rows that have been through them.
KEPT_TRIGGERS = ("memory_kept", "message_kept")
OF_NO_RUN = "SELECT COUNT(*) FROM events WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = events.run)"
NEW = (
    "journal_mode = MEMORY",
    "synchronous = OFF",
    "cache_size = -16384",
)  # a crash leaves a file that has no name yet


class SqliteSide:
    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self._undecodable = 0
        database.text_factory = self._text

    def _text(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            self._undecodable += 1
            return data.decode(errors="replace")

    def rows(self, table: Table, replaced: Counter[str]) -> Iterator[Values]:
        convert = Conversion(table, replaced)
        before = self._undecodable
        rows: Iterable[tuple[object, ...]] = self.database.execute(table.read_sqlite())
        for row in _unpacked(rows) if table.name == EVENTS else rows:
            yield convert(row)
        if self._undecodable > before:
            replaced[table.name] += self._undecodable - before

    def events_of_no_run(self) -> int:
        return int(self.database.execute(OF_NO_RUN).fetchone()[0])

    def write(self, table: Table, rows: Iterable[Values]) -> None:
        if table.name == EVENTS:
            self.database.executemany(INSERT_EVENT.sql, map(INSERT_EVENT.values, self._packed(rows)))
        else:
            self.database.executemany(table.write_sqlite(), rows)

    def _packed(self, rows: Iterable[Values]) -> Iterator[EventRow]:
        for number, events in groupby(rows, lambda row: row[0]):
            [(run,)] = self.database.execute("SELECT id FROM runs WHERE rowid = ?", (number,))
            yield from packed(EventRow(run, *event[1:]) for event in events)

    @contextmanager
    def without_triggers(self) -> Generator[None, None, None]:
        made = self.database.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        triggers = [(name, sql) for name, sql in made if name not in KEPT_TRIGGERS]
        for name, _ in triggers:
            self.database.execute(f"DROP TRIGGER {name}")
        yield
        for _, sql in triggers:
            self.database.execute(sql)


async def settle(path: Path) -> None:
    """Bring the file of a server that has stopped up to date, with every event and change in its table."""
    store = await SQLiteStore.open(path)
    try:
        await store.settle()
    finally:
        await store.close()


@contextmanager
def existing(path: Path) -> Generator[SqliteSide, None, None]:
    """The rows of one moment."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN")
        assert not database.execute(f"SELECT COUNT(*) FROM {TABLES[TABLES.index('event_batches')]}").fetchone()[0]
        yield SqliteSide(database)
        database.execute("COMMIT")


@contextmanager
def new(path: Path) -> Generator[SqliteSide, None, None]:
    """An empty database in an empty file, in one transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for pragma in NEW:
            database.execute(f"PRAGMA {pragma}")
        database.execute("BEGIN")
        for script in SCHEMA:
            for statement in statements_of(script):
                database.execute(statement)
        database.execute(f"PRAGMA user_version = {len(SCHEMA)}")
        yield SqliteSide(database)
        database.execute("COMMIT")


def statements_of(script: str) -> Iterator[str]:
    """The statements of a script, one by one: `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _unpacked(rows: Iterable[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    """Events that are packed into one row, as the rows that PostgreSQL has."""
    for row in rows:
        run, _, kind, data, _ = row
        if kind == PACKED:
            events = map(row_of, str(data).split("\n"))
            yield from ((run, event.seq, event.type, event.data, None) for event in events)
        else:
            yield row
