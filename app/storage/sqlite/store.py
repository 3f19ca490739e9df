"""The store in one SQLite file, through aiosqlite."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Self

from app.storage.approval_rows import ApprovalDecided
from app.storage.data_dir import make_private, make_private_file
from app.storage.rows import Change, EventRow, TokenRow
from app.storage.sqlite.advice import advice
from app.storage.sqlite.reader import Question, Reader
from app.storage.sqlite.reads import Reads
from app.storage.sqlite.statements import (
    ADD_TOKEN,
    FORGET,
    FORGOTTEN_WORDS,
    IDLE_SESSIONS,
    MOST_AT_ONCE,
    ONE_SESSION,
    SCHEMA,
    STATEMENTS,
    insert_events,
    token_values,
)
from app.storage.sqlite.writer import Statement, Writer
from app.storage.store import StoreFailed

# WAL with synchronous=NORMAL survives a kill of the process (not a power cut) at 5 us an event instead of 220.
PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL", "busy_timeout = 5000")


class SQLiteStore(Reads):
    """Implements app.storage.store.Store.

    Two connections: readers must not see what the writer has not committed yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = Writer(path)
        self._reader = Reader(path)
        self._one_writer = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open or make the database. Raises StoreFailed when the file is not a database or cannot be written."""
        try:
            make_private(path.parent)
            make_private_file(path)
        except OSError as error:
            advice = "Set DRAGOMAN_DATA_DIR to a folder of your own that can be written."
            raise StoreFailed(f"The data_dir {path.parent} cannot be used: {error.strerror}. {advice}") from error
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
        async with self._one_writer, self._named_failures():
            await self._writer.write(list(_statements(changes)))  # made here: the writer's thread shall not need Python

    async def _apply(self, changes: Sequence[Change]) -> None:
        for statement, values in _statements(changes):
            await self._writer.executemany(statement, values)

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

    async def replace_events(self, run: str, rows: Sequence[EventRow]) -> None:
        insert, values = STATEMENTS[EventRow]
        async with self._transaction():
            updated = await self._writer.execute("UPDATE runs SET joined = 1 WHERE id = ?", (run,))
            if not updated.rowcount:
                return  # deleted while its log was being joined: nothing of it may come back
            await self._writer.execute("DELETE FROM events WHERE run = ?", (run,))
            await self._writer.executemany(insert, list(map(values, rows)))

    async def vacuum(self) -> None:
        async with self._one_writer, self._named_failures():
            await self._writer.execute(FORGOTTEN_WORDS)
            await self._writer.commit()
            await self._writer.execute("VACUUM")

    async def check(self) -> None:
        async with self._transaction():
            await self._writer.execute("BEGIN IMMEDIATE")
            await self._writer.execute(f"PRAGMA user_version = {len(SCHEMA)}")  # writes a page, changes nothing

    async def add_token(self, row: TokenRow, also: Sequence[Change] = ()) -> bool:
        async with self._transaction():
            added = await self._writer.execute(ADD_TOKEN, token_values(row))
            if added.rowcount:
                await self._apply(also)
            return bool(added.rowcount)

    async def decide_approval(self, decided: ApprovalDecided, also: Sequence[Change] = ()) -> bool:
        update, values = STATEMENTS[ApprovalDecided]
        async with self._transaction():
            updated = await self._writer.execute(update, values(decided))
            if updated.rowcount:
                await self._apply(also)
            return bool(updated.rowcount)

    async def forget_audit(self, before: float) -> None:
        async with self._transaction():
            await self._writer.execute("DELETE FROM audit WHERE at < ?", (before,))

    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()

    async def _each(self, *questions: Question) -> list[list[Any]]:
        async with self._named_failures():
            return await self._reader.read(questions)

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


def _statements(changes: Sequence[Change]) -> Iterator[Statement]:
    """Neighbours of one kind as one statement."""
    for kind, rows in groupby(changes, type):
        statement, values_of = STATEMENTS[kind]
        values = list(map(values_of, rows))
        if kind is not EventRow:
            yield statement, values
            continue
        for at in range(0, len(values), MOST_AT_ONCE):
            some = values[at : at + MOST_AT_ONCE]
            yield insert_events(len(some)), [tuple(chain.from_iterable(some))]
