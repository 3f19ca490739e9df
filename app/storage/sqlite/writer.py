"""The connection that writes: a transaction in one go, because each errand to its thread costs more than a row."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite

Statement = tuple[str, list[tuple[Any, ...]]]  # SQL, and the values of each time it is to be executed
CHUNK = 64  # rows that a cursor fetches at a time


class Writer(aiosqlite.Connection):
    def __init__(self, path: Path) -> None:
        super().__init__(partial(sqlite3.connect, str(path)), CHUNK)

    async def write(self, statements: Iterable[Statement]) -> None:
        """All of them, or none."""
        await self._execute(_transact, self._conn, statements)  # type: ignore[no-untyped-call]


def _transact(connection: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    try:
        for sql, rows in statements:
            connection.executemany(sql, rows)
        connection.commit()
    finally:
        if connection.in_transaction:
            connection.rollback()
