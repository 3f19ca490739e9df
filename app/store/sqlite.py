"""The store in one SQLite file, through aiosqlite."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple
from itertools import groupby
from pathlib import Path
from typing import Any

import aiosqlite

from app.messages import Message, load
from app.store import Change, EventRow, MessageRow, RunEnded, RunRow, SessionRow, StoreFailed, TokenRow

SCHEMA = (Path(__file__).parent / "schema.sql").read_text()

# WAL with synchronous=NORMAL survives a kill of the process (not a power cut) at 5 us an event instead of 220.
PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL", "busy_timeout = 5000")

# What each kind of change says to the database, and the values it says it with.
STATEMENTS: dict[type[Any], tuple[str, Callable[[Any], tuple[Any, ...]]]] = {
    EventRow: ("INSERT INTO events VALUES (?, ?, ?, ?)", lambda row: (row.run, row.seq, row.type, row.data)),
    MessageRow: ("INSERT INTO messages VALUES (?, ?, ?, ?)", astuple),
    SessionRow: ("INSERT INTO sessions VALUES (?, ?, ?, ?)", astuple),
    RunRow: ("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", astuple),
    RunEnded: ("UPDATE runs SET state = ?, ended = ? WHERE id = ?", lambda row: (row.state, row.ended, row.id)),
    TokenRow: ("INSERT INTO tokens VALUES (?, ?, ?, ?)", astuple),
}

FORGET_SESSION = (
    "DELETE FROM events WHERE run IN (SELECT id FROM runs WHERE session = ?)",
    "DELETE FROM runs WHERE session = ?",
    "DELETE FROM messages WHERE session = ?",
    "DELETE FROM sessions WHERE id = ?",
)


class SQLiteStore:
    """Implements app.store.Store.

    Two connections: readers must not see what the writer has not committed yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = aiosqlite.connect(path)
        self._reader = aiosqlite.connect(path)
        self._one_writer = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path) -> SQLiteStore:
        """Open or make the database. Raises StoreFailed when the file is not a database or cannot be written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            advice = "Set DRAGOMAN_DATA_DIR to a folder that can be written."
            raise StoreFailed(f"The data directory {path.parent} cannot be made: {error}. {advice}") from error
        store = cls(path)
        try:
            async with store._named_failures():
                await store._connect()
        except StoreFailed:
            await store.close()
            raise
        return store

    async def _connect(self) -> None:
        await self._writer
        await self._reader
        for connection in (self._writer, self._reader):
            for pragma in PRAGMAS:
                await connection.execute(f"PRAGMA {pragma}")
        await self._writer.executescript(SCHEMA)

    async def write(self, changes: Sequence[Change]) -> None:
        async with self._transaction():
            for kind, rows in groupby(changes, type):
                statement, values = STATEMENTS[kind]
                await self._writer.executemany(statement, list(map(values, rows)))

    async def run(self, run: str) -> RunRow | None:
        rows = await self._all("SELECT * FROM runs WHERE id = ?", run)
        return RunRow(*rows[0]) if rows else None

    async def runs(self, session: str) -> list[RunRow]:
        return [
            RunRow(*row) for row in await self._all("SELECT * FROM runs WHERE session = ? ORDER BY created", session)
        ]

    async def unfinished_runs(self) -> list[RunRow]:
        return [RunRow(*row) for row in await self._all("SELECT * FROM runs WHERE state = 'running'")]

    async def events(self, run: str, after: int, limit: int) -> list[EventRow]:
        query = "SELECT * FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
        return [EventRow(*row) for row in await self._all(query, run, after, limit)]

    async def last_seq(self, run: str) -> int:
        rows = await self._all("SELECT COALESCE(MAX(seq), 0) FROM events WHERE run = ?", run)
        return int(rows[0][0])

    async def session(self, session: str) -> SessionRow | None:
        rows = await self._all("SELECT * FROM sessions WHERE id = ?", session)
        return SessionRow(*rows[0]) if rows else None

    async def sessions(self, principal: str, limit: int) -> list[SessionRow]:
        query = "SELECT * FROM sessions WHERE principal = ? ORDER BY created DESC LIMIT ?"
        return [SessionRow(*row) for row in await self._all(query, principal, limit)]

    async def messages(self, session: str) -> list[Message]:
        rows = await self._all("SELECT message FROM messages WHERE session = ? ORDER BY position", session)
        return [load(row[0]) for row in rows]

    async def delete_session(self, session: str) -> None:
        async with self._transaction():
            for statement in FORGET_SESSION:
                await self._writer.execute(statement, (session,))

    async def check(self) -> None:
        async with self._transaction():
            await self._writer.execute("BEGIN IMMEDIATE")
            await self._writer.execute("PRAGMA user_version = 0")  # writes a page, and changes nothing

    async def tokens(self) -> list[TokenRow]:
        return [TokenRow(*row) for row in await self._all("SELECT * FROM tokens ORDER BY created")]

    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()

    async def _all(self, query: str, *values: object) -> list[Any]:
        async with self._named_failures():
            return list(await self._reader.execute_fetchall(query, values))

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        async with self._one_writer, self._named_failures():
            try:
                yield
                await self._writer.commit()
            finally:
                if self._writer.in_transaction:
                    await self._writer.rollback()

    @asynccontextmanager
    async def _named_failures(self) -> AsyncIterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError) as error:
            raise StoreFailed(f"The database {self._path} failed: {error}. {advice(error)}") from error


def advice(error: Exception) -> str:
    """What a person can do about it."""
    text = str(error)
    for sign, advice in ADVICE.items():
        if sign in text:
            return advice
    return "Check the file, its folder and the disk, or set DRAGOMAN_DATA_DIR to another folder."


ADVICE = {
    "not a database": "Move that file away, or set DRAGOMAN_DATA_DIR to another folder.",
    "disk is full": "Make room on the disk.",
    "locked": "Another process holds it: stop that one, or give this one another DRAGOMAN_DATA_DIR.",
    "readonly": "Make the file and its folder writable, or set DRAGOMAN_DATA_DIR to another folder.",
}
