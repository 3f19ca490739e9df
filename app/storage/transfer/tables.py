"""The tables that both databases have, as what is moved from one to the other: their columns, and an order of rows.

They are read off the two schemas, so that a new table or column is moved without a word here. Only what PostgreSQL has
beside SQLite is named: it is made anew from the other columns, or begins with its default.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from app.storage.changes import StoreFailed
from app.storage.postgres.connections import Connection
from app.storage.postgres.write_function import clean
from app.storage.sqlite.schema import TABLES

MOVED = tuple(table for table in TABLES if table != "event_batches")  # these are settled before
EVENTS, MESSAGES, RUNS = "events", "messages", "runs"
OWN = {  # of PostgreSQL
    EVENTS: ("call",),
    MESSAGES: ("number", "role", "at", "untrusted", "searched", "words"),
    RUNS: ("owner", "epoch", "home", "asked", "takes_messages"),
    "memories": ("searched",),
}
COLUMNS = """
    SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
    WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
NUMBER = "number"  # SQLite's rowid, where it has no such column
Values = tuple[Any, ...]


class Table(Struct, frozen=True):
    """`columns`: name -> type in PostgreSQL. `order`: of the rows, the same in both databases."""

    name: str
    columns: dict[str, str]
    order: tuple[str, ...]
    has_rowid: bool = False  # its rowid is moved as `number`

    def read_sqlite(self) -> str:
        names = [f"{self.name}.rowid" if self._is_rowid(one) else f"{self.name}.{one}" for one in self.columns]
        listed = ", ".join(names)
        if self.name == EVENTS:  # in PostgreSQL a run's number stands for its id
            listed = listed.replace("events.run", "runs.rowid")
            return (
                f"SELECT {listed} FROM runs CROSS JOIN events ON events.run = runs.id ORDER BY runs.rowid, events.seq"
            )
        if self.name == MESSAGES:
            joined = "message_numbers CROSS JOIN messages USING (session, position)"
            return f"SELECT {listed} FROM {joined} ORDER BY message_numbers.number"
        order = ", ".join("rowid" if self._is_rowid(one) else one for one in self.order)
        return f"SELECT {listed} FROM {self.name} ORDER BY {order}"

    def write_sqlite(self) -> str:
        names = ", ".join("rowid" if self._is_rowid(one) else one for one in self.columns)
        return f"INSERT INTO {self.name} ({names}) VALUES ({', '.join('?' * len(self.columns))})"

    def read_postgres(self) -> str:
        listed = ", ".join(f"{self.name}.{one}" for one in self.columns)
        joined = "events JOIN runs ON runs.number = events.run" if self.name == EVENTS else self.name
        return f"SELECT {listed} FROM {joined} ORDER BY {', '.join(f'{self.name}.{one}' for one in self.order)}"

    def _is_rowid(self, column: str) -> bool:
        return self.has_rowid and column == NUMBER


async def tables_of(database: sqlite3.Connection, connection: Connection) -> list[Table]:
    """Return the tables in the order in which they are copied."""
    return [_table(name, _keys(database, name), dict(await connection.fetch(COLUMNS, name))) for name in MOVED]


def _keys(database: sqlite3.Connection, name: str) -> dict[str, int]:
    """The columns in SQLite, each with its place in the primary key, or 0."""
    return {column: place for _, column, _, _, _, place in database.execute(f"PRAGMA table_info({name})")}


def _table(name: str, keys: dict[str, int], types: dict[str, str]) -> Table:
    own = OWN.get(name, ())
    has_rowid = NUMBER in types and NUMBER not in keys and NUMBER not in own
    columns = {column: kind for column, kind in types.items() if column in keys or (has_rowid and column == NUMBER)}
    key = tuple(sorted((column for column in keys if keys[column]), key=keys.__getitem__))
    return Table(name, columns, (NUMBER,) if has_rowid or name == MESSAGES else key, has_rowid)


class Conversion:
    """Rows of a table as both databases hold them; `replaced` counts the values that had to be changed for that."""

    def __init__(self, table: Table, replaced: Counter[str]) -> None:
        self._table = table
        self._replaced = replaced
        types: dict[str, Callable[[Any], Any]] = {
            "text": self._text,
            "bigint": _integer,
            "integer": _integer,
            "double precision": _number,
            "boolean": bool,
            "bytea": _bytes,
        }
        self._convert = [types[kind] for kind in table.columns.values()]

    def __call__(self, row: Sequence[Any]) -> Values:
        """Raises StoreFailed."""
        try:
            return tuple([convert(value) if value is not None else None for convert, value in zip(self._convert, row)])  # noqa: B905
        except TypeError as error:
            place = dict(zip(self._table.columns, row, strict=True))
            key = {name: place[name] for name in self._table.order if name in place}
            raise StoreFailed(
                f"The row {key} of {self._table.name} has a value that its column may not have."
            ) from error

    def _text(self, value: object) -> str:
        if not isinstance(value, str):
            raise TypeError(value)
        if "\x00" in value:
            self._replaced[self._table.name] += 1
            return clean(value)
        return value


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(value)
    return value + 0.0  # SQLite has no -0.0


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(value)
    return value
