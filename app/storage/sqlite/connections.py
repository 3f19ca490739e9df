"""The connections of a store.

A call to the thread of a connection costs more than a row, and that thread waits for the interpreter while the event
loop is busy: so the loop makes small commits itself, over a connection of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import aiosqlite

from app.storage.sql.rows import Query

Statement = tuple[str, list[tuple[Any, ...]]]  # SQL, and the values of each time that it is to be executed
MakeStatements = Callable[[sqlite3.Connection], Sequence[Statement]]
Given = ParamSpec("Given")
Result = TypeVar("Result")
COPY_LOG = "PRAGMA wal_checkpoint"
TRUNCATE_LOG = "PRAGMA wal_checkpoint(TRUNCATE)"
CHUNK = 64  # rows that a cursor fetches at a time


class ThreadConnection(aiosqlite.Connection):
    """A connection with a thread of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(partial(sqlite3.connect, str(path)), CHUNK)

    async def call(
        self, work: Callable[Concatenate[sqlite3.Connection, Given], Result], *given: Given.args, **named: Given.kwargs
    ) -> Result:
        """Call one of the functions below in that thread."""
        result: Result = await self._execute(work, self._conn, *given, **named)  # type: ignore[no-untyped-call]
        return result


class LoopConnection:
    """A connection of the event loop's own thread, for small commits and for rows that are looked up by their key.

    A commit of one row takes 12 us and such a row 5; a call to another thread would add 100.

    With WAL and synchronous=NORMAL a commit is a write into the kernel's page cache; what waits for the disk (a
    checkpoint) is left to the other one. It waits for no lock: `transact` raises sqlite3.OperationalError.
    """

    def __init__(self, path: Path, pragmas: Sequence[str]) -> None:
        self._connection = sqlite3.connect(str(path), isolation_level=None, timeout=0)
        for pragma in (*pragmas, "busy_timeout = 0", "wal_autocheckpoint = 0"):
            self._connection.execute(f"PRAGMA {pragma}")

    def transact(self, statements: Sequence[Statement]) -> None:
        """Execute all of them in one transaction, or none."""
        connection = self._connection
        if len(statements) == 1 and len(statements[0][1]) == 1:  # as a rule, a batch of events
            connection.execute(statements[0][0], statements[0][1][0])
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            for sql, rows in statements:
                connection.executemany(sql, rows)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def read(self, query: Query) -> list[Any]:
        return self._connection.execute(*query).fetchall()

    def close(self) -> None:
        self._connection.close()


def transact(connection: sqlite3.Connection, statements: Iterable[Statement]) -> list[int]:
    """Execute all of them in one transaction, or none; return how many rows each has changed."""
    try:
        changed = [connection.executemany(sql, rows).rowcount for sql, rows in statements]
        connection.commit()
        return changed
    finally:
        if connection.in_transaction:
            connection.rollback()


def read_ahead(connection: sqlite3.Connection, make: MakeStatements, queries: Sequence[Query]) -> list[list[Any]]:
    """The rows of each query as they are once some statements are executed, which are rolled back."""
    connection.execute("PRAGMA cache_spill = OFF")  # nothing of it is to need room on the disk
    connection.execute("BEGIN")
    try:
        if make(connection):  # else no lock that others wait for
            connection.rollback()
            connection.execute("BEGIN IMMEDIATE")
            for sql, rows in make(connection):
                connection.executemany(sql, rows)
        return [connection.execute(sql, values).fetchall() for sql, values in queries]
    finally:
        connection.rollback()
        connection.execute("PRAGMA cache_spill = ON")


def copy_log(path: Path) -> tuple[int, int]:
    """Copy the write-ahead log into the database, while others write; return its pages, and how many are copied."""
    with closing(sqlite3.connect(str(path), timeout=0)) as connection:
        [(_, pages, copied)] = connection.execute(COPY_LOG)
        return pages, copied


def truncate_log(path: Path) -> None:
    """Empty the write-ahead log, once it is copied; nothing is done while another connection reads from it."""
    with closing(sqlite3.connect(str(path), timeout=0)) as connection:
        connection.execute(TRUNCATE_LOG).fetchall()


def begin_log_anew(connection: sqlite3.Connection) -> None:
    """Copy what is left of the write-ahead log, and write its first page, both of which wait for the disk."""
    connection.execute(COPY_LOG)
    [(version,)] = connection.execute("PRAGMA user_version")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA user_version = {version}")  # writes a page, changes nothing
    connection.commit()


def read(connection: sqlite3.Connection, queries: Sequence[Query]) -> list[list[Any]]:
    """The rows of each query, of one snapshot: a row that moves between tables is in exactly one of the answers."""
    if len(queries) > 1:
        connection.execute("BEGIN")
    try:
        return [connection.execute(sql, values).fetchall() for sql, values in queries]
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
