"""SQL derived from the fields of a row's struct: a column is written there and in the schema, nowhere else.

All statements are made at import. They are those of SQLite, with `?` for values; PostgreSQL translates them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import attrgetter
from typing import Any, Generic, TypeVar, get_type_hints

from msgspec import Struct

from app.storage.changes import Change

Row = TypeVar("Row")
Values = Callable[[Any], tuple[Any, ...]]


class Write(Struct, frozen=True):
    """A statement, the function that takes its values from a change, and the attributes that these are."""

    sql: str
    values: Values
    attributes: tuple[str, ...]


class Select(Struct, Generic[Row], frozen=True):
    """A query, and the function that makes a row of the values that it returns."""

    sql: str
    row: Callable[..., Row]


def names(row: type[Change], table: str = "") -> str:
    """The columns of a row in the order of its fields, as a list in SQL; qualified if a table is given."""
    prefix = f"{table}." if table else ""
    return ", ".join(prefix + column for column in _columns(row))


def marks(row: type[Change]) -> str:
    """A `?` for each column."""
    return ", ".join("?" * len(row.__struct_fields__))


def write(sql: str, *attributes: str) -> Write:
    """Execute a statement with these attributes of a change as its values."""
    return Write(sql, _values(attributes), attributes)


def insert(table: str, row: type[Change], conflict: str = "") -> Write:
    """Insert a row; `conflict` is an ON CONFLICT clause."""
    sql = f"INSERT INTO {table} ({names(row)}) VALUES ({marks(row)}) {conflict}"
    return write(sql.rstrip(), *row.__struct_fields__)


def upsert(table: str, row: type[Change], *key: str) -> Write:
    """Insert a row, or replace the one with the same key."""
    others = ", ".join(f"{column} = excluded.{column}" for column in _columns(row) if column not in key)
    return insert(table, row, f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {others}")


def insert_once(table: str, row: type[Change], *key: str) -> Write:
    """Insert a row, unless there is one with the same key."""
    return insert(table, row, f"ON CONFLICT ({', '.join(key)}) DO NOTHING")


def update(table: str, change: type[Change], *key: str, condition: str = "") -> Write:
    """Set the columns that the change has beside the key."""
    others = [column for column in _columns(change) if column not in key]
    sql = f"UPDATE {table} SET {', '.join(f'{column} = ?' for column in others)} WHERE {_equal(key)}{condition}"
    return write(sql, *others, *key)


def delete(table: str, change: type[Change]) -> Write:
    """Delete the rows that have the values of the change."""
    columns = _columns(change)
    return write(f"DELETE FROM {table} WHERE {_equal(columns)}", *columns)


def select(row: type[Row], table: str, rest: str) -> Select[Row]:
    """Read whole rows; `rest` follows the name of the table."""
    assert issubclass(row, Change)
    return Select(f"SELECT {names(row)} FROM {table} {rest}", partial(_made, row))


def _made(row: Callable[..., Any], *values: Any) -> Any:
    """Make a row of the values that a database has: SQLite has numbers for booleans."""
    if not (booleans := _booleans(row)):
        return row(*values)
    fields = [bool(one) if at in booleans and one is not None else one for at, one in enumerate(values)]
    return row(*fields)


@cache
def _booleans(row: Callable[..., Any]) -> frozenset[int]:
    """Return the places of the fields that are booleans. Asked with the first row: at the start it would take 4 ms."""
    hints = get_type_hints(row)
    return frozenset(at for at, name in enumerate(hints) if hints[name] in (bool, bool | None))


def _columns(row: type[Change]) -> list[str]:
    return list(row.__struct_encode_fields__)


def _equal(columns: Sequence[str]) -> str:
    return " AND ".join(f"{column} = ?" for column in columns)


def _values(attributes: Sequence[str]) -> Values:
    get = attrgetter(*attributes)
    return get if len(attributes) > 1 else lambda change: (get(change),)
