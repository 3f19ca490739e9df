"""The two connections of a store: a call to a connection's thread costs more than a row, so each does many at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite

Statement = tuple[str, list[tuple[Any, ...]]]  # SQL, and the values of each time that it is to be executed
Query = tuple[str, tuple[object, ...]]  # SQL, and its values
CHUNK = 64  # rows that a cursor fetches at a time


class Writer(aiosqlite.Connection):
    def __init__(self, path: Path) -> None:
        super().__init__(partial(sqlite3.connect, str(path)), CHUNK)

    async def write(self, statements: Iterable[Statement]) -> None:
        """Execute all of them in one transaction, or none."""
        await self._execute(_transact, self._conn, statements)  # type: ignore[no-untyped-call]


class Reader(aiosqlite.Connection):
    def __init__(self, path: Path) -> None:
        super().__init__(partial(sqlite3.connect, str(path)), CHUNK)

    async def read(self, queries: Sequence[Query]) -> list[list[Any]]:
        """The rows of each query."""
        answers: list[list[Any]] = await self._execute(_read, self._conn, queries)  # type: ignore[no-untyped-call]
        return answers


def _transact(connection: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    try:
        for sql, rows in statements:
            connection.executemany(sql, rows)
        connection.commit()
    finally:
        if connection.in_transaction:
            connection.rollback()


def _read(connection: sqlite3.Connection, queries: Sequence[Query]) -> list[list[Any]]:
    """Read one snapshot: a row that moves from one table to another is in exactly one of the answers."""
    if len(queries) > 1:
        connection.execute("BEGIN")
    try:
        return [connection.execute(sql, values).fetchall() for sql, values in queries]
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
