"""The connection that reads: several questions in one errand to its thread, which costs more than most answers."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite

from app.storage.sqlite.writer import CHUNK

Question = tuple[str, tuple[object, ...]]  # SQL, and its values


class Reader(aiosqlite.Connection):
    def __init__(self, path: Path) -> None:
        super().__init__(partial(sqlite3.connect, str(path)), CHUNK)

    async def read(self, questions: Sequence[Question]) -> list[list[Any]]:
        """The rows of each."""
        answers: list[list[Any]] = await self._execute(_read, self._conn, questions)  # type: ignore[no-untyped-call]
        return answers


def _read(connection: sqlite3.Connection, questions: Sequence[Question]) -> list[list[Any]]:
    """Several questions are answered as of one moment: what moves from one table to another is in one of them."""
    if len(questions) > 1:
        connection.execute("BEGIN")
    try:
        return [connection.execute(sql, values).fetchall() for sql, values in questions]
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
