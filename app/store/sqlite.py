"""The store in one SQLite file, through aiosqlite."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import aiosqlite

from app.messages import Message, load
from app.store import Change, EventRow, InboxRow, KeyRow, RunRow, SessionRow, StoreFailed, TokenRow
from app.store.statements import (
    EVENT_COLUMNS,
    FORGET,
    IDLE_SESSIONS,
    ONE_SESSION,
    RUN_COLUMNS,
    SCHEMA,
    STATEMENTS,
    TABLES,
)

# WAL with synchronous=NORMAL survives a kill of the process (not a power cut) at 5 us an event instead of 220.
PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL", "busy_timeout = 5000")


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
    async def open(cls, path: Path) -> Self:
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
        [(version,)] = await self._writer.execute_fetchall("PRAGMA user_version")
        if version > len(SCHEMA):
            raise StoreFailed(
                f"The database {self._path} was made by a newer dragoman (schema {version}). Upgrade this one."
            )
        for number, script in enumerate(SCHEMA[version:], start=version + 1):
            await self._writer.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")

    async def write(self, changes: Sequence[Change]) -> None:
        async with self._transaction():
            for kind, rows in groupby(changes, type):
                statement, values = STATEMENTS[kind]
                await self._writer.executemany(statement, list(map(values, rows)))

    async def run(self, run: str) -> RunRow | None:
        rows = await self._all(f"SELECT {RUN_COLUMNS} FROM runs WHERE id = ?", run)
        return RunRow(*rows[0]) if rows else None

    async def runs(self, session: str) -> list[RunRow]:
        query = f"SELECT {RUN_COLUMNS} FROM runs WHERE session = ? ORDER BY created"
        return [RunRow(*row) for row in await self._all(query, session)]

    async def unfinished_runs(self) -> list[RunRow]:
        query = f"SELECT {RUN_COLUMNS} FROM runs WHERE state IN ('queued', 'running') ORDER BY created"
        return [RunRow(*row) for row in await self._all(query)]

    async def events(self, run: str, after: int, limit: int) -> list[EventRow]:
        query = f"SELECT {EVENT_COLUMNS} FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
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
            await self._forget(ONE_SESSION, session)

    async def forget_before(self, sessions: float, keys: float) -> int:
        async with self._transaction():
            await self._writer.execute("DELETE FROM idempotency WHERE created < ?", (keys,))
            return await self._forget(IDLE_SESSIONS, sessions, sessions)

    async def _forget(self, query: str, *values: object) -> int:
        gone = 0
        for statement in FORGET:
            cursor = await self._writer.execute(
                statement.replace("SESSIONS", query), values if "SESSIONS" in statement else ()
            )
            gone = cursor.rowcount if statement.startswith("DELETE FROM sessions") else gone
        return gone

    async def started_calls(self, run: str) -> set[str]:
        rows = await self._all("SELECT data FROM events WHERE run = ? AND type = 'tool.started'", run)
        return {json.loads(row[0])["call"] for row in rows}

    async def inbox(self, run: str) -> list[str]:
        rows = await self._all("SELECT text FROM inbox WHERE run = ? ORDER BY position", run)
        return [row[0] for row in rows]

    async def stranded(self, session: str) -> list[InboxRow]:
        query = """
            SELECT inbox.run, inbox.position, inbox.text FROM inbox JOIN runs ON runs.id = inbox.run
            WHERE runs.session = ? AND runs.ended IS NOT NULL ORDER BY runs.created, inbox.position
        """
        return [InboxRow(*row) for row in await self._all(query, session)]

    async def key(self, principal: str, key: str) -> KeyRow | None:
        query = "SELECT principal, key, body, run, created FROM idempotency WHERE principal = ? AND key = ?"
        rows = await self._all(query, principal, key)
        return KeyRow(*rows[0]) if rows else None

    async def state(self, name: str) -> str | None:
        rows = await self._all("SELECT value FROM state WHERE name = ?", name)
        return rows[0][0] if rows else None

    async def bulky_runs(self, ended_before: float, limit: int) -> list[str]:
        query = "SELECT id FROM runs WHERE joined = 0 AND ended < ? ORDER BY ended LIMIT ?"
        return [row[0] for row in await self._all(query, ended_before, limit)]

    async def replace_events(self, run: str, rows: Sequence[EventRow]) -> None:
        insert, values = STATEMENTS[EventRow]
        async with self._transaction():
            updated = await self._writer.execute("UPDATE runs SET joined = 1 WHERE id = ?", (run,))
            if not updated.rowcount:
                return  # deleted while its log was being joined: nothing of it may come back
            await self._writer.execute("DELETE FROM events WHERE run = ?", (run,))
            await self._writer.executemany(insert, list(map(values, rows)))

    async def sizes(self) -> dict[str, int]:
        counts = {table: (await self._all(f"SELECT COUNT(*) FROM {table}"))[0][0] for table in TABLES}
        pages, size = (await self._all("PRAGMA page_count"))[0][0], (await self._all("PRAGMA page_size"))[0][0]
        return counts | {"bytes": pages * size}

    async def vacuum(self) -> None:
        async with self._one_writer, self._named_failures():
            await self._writer.execute("VACUUM")

    async def check(self) -> None:
        async with self._transaction():
            await self._writer.execute("BEGIN IMMEDIATE")
            await self._writer.execute(f"PRAGMA user_version = {len(SCHEMA)}")  # writes a page, changes nothing

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
