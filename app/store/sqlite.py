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
from app.store import (
    ApprovalDecided,
    ApprovalRow,
    AuditRow,
    Change,
    EventRow,
    GrantRow,
    InboxRow,
    KeyRow,
    McpPinRow,
    McpServerRow,
    RunRow,
    SessionRow,
    StoreFailed,
    TokenCounts,
    TokenRow,
)
from app.store.advice import advice
from app.store.statements import (
    ADD_TOKEN,
    APPROVAL_COLUMNS,
    AUDIT_COLUMNS,
    EVENT_COLUMNS,
    FORGET,
    GRANT_COLUMNS,
    IDLE_SESSIONS,
    MCP_PIN_COLUMNS,
    MCP_SERVER_COLUMNS,
    ONE_SESSION,
    RUN_COLUMNS,
    SCHEMA,
    SESSION_COLUMNS,
    STATEMENTS,
    TABLES,
    TOKEN_COLUMNS,
    TOKEN_COUNTS,
    token_values,
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
            await self._apply(changes)

    async def _apply(self, changes: Sequence[Change]) -> None:
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
        rows = await self._all(f"SELECT {SESSION_COLUMNS} FROM sessions WHERE id = ?", session)
        return SessionRow(*rows[0]) if rows else None

    async def sessions(self, principal: str, limit: int) -> list[SessionRow]:
        query = f"SELECT {SESSION_COLUMNS} FROM sessions WHERE principal = ? ORDER BY created DESC LIMIT ?"
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

    async def inbox(self, run: str) -> list[InboxRow]:
        rows = await self._all("SELECT run, position, text FROM inbox WHERE run = ? ORDER BY position", run)
        return [InboxRow(*row) for row in rows]

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
        return [TokenRow(*row) for row in await self._all(f"SELECT {TOKEN_COLUMNS} FROM tokens ORDER BY created")]

    async def token(self, sha256: str) -> TokenRow | None:
        rows = await self._all(f"SELECT {TOKEN_COLUMNS} FROM tokens WHERE sha256 = ?", sha256)
        return TokenRow(*rows[0]) if rows else None

    async def token_counts(self, now: float) -> TokenCounts:
        return TokenCounts(*(await self._all(TOKEN_COUNTS, now))[0])

    async def add_token(self, row: TokenRow, also: Sequence[Change] = ()) -> bool:
        async with self._transaction():
            added = await self._writer.execute(ADD_TOKEN, token_values(row))
            if added.rowcount:
                await self._apply(also)
            return bool(added.rowcount)

    async def approval(self, run: str, call: str) -> ApprovalRow | None:
        rows = await self._approvals("run = ? AND call = ?", run, call)
        return rows[0] if rows else None

    async def approvals(self, principal: str) -> list[ApprovalRow]:
        return await self._approvals("principal = ? AND state = 'pending' ORDER BY created", principal)

    async def pending_of(self, run: str) -> list[ApprovalRow]:
        return await self._approvals("run = ? AND state IN ('pending', 'approved', 'denied') ORDER BY created", run)

    async def _approvals(self, which: str, *values: object) -> list[ApprovalRow]:
        rows = await self._all(f"SELECT {APPROVAL_COLUMNS} FROM approvals WHERE {which}", *values)
        return [ApprovalRow(*row) for row in rows]

    async def decide_approval(self, decided: ApprovalDecided, also: Sequence[Change] = ()) -> bool:
        update, values = STATEMENTS[ApprovalDecided]
        async with self._transaction():
            updated = await self._writer.execute(update, values(decided))
            if updated.rowcount:
                await self._apply(also)
            return bool(updated.rowcount)

    async def grants(self, session: str) -> list[GrantRow]:
        query = f"SELECT {GRANT_COLUMNS} FROM grants WHERE session = ? ORDER BY created"
        return [GrantRow(*row) for row in await self._all(query, session)]

    async def audit(self, before: int, limit: int) -> list[tuple[int, AuditRow]]:
        query = f"SELECT number, {AUDIT_COLUMNS} FROM audit WHERE number < ? ORDER BY number DESC LIMIT ?"
        return [(number, AuditRow(*row)) for number, *row in await self._all(query, before, limit)]

    async def forget_audit(self, before: float) -> None:
        async with self._transaction():
            await self._writer.execute("DELETE FROM audit WHERE at < ?", (before,))

    async def usage(self, principal: str, kind: str, period: str) -> float:
        query = "SELECT amount FROM used WHERE principal = ? AND kind = ? AND period = ?"
        rows = await self._all(query, principal, kind, period)
        return float(rows[0][0]) if rows else 0.0

    async def mcp_servers(self) -> list[McpServerRow]:
        rows = await self._all(f"SELECT {MCP_SERVER_COLUMNS} FROM mcp_servers ORDER BY at, name")
        return [McpServerRow(name, entry, None if on is None else bool(on), *rest) for name, entry, on, *rest in rows]

    async def mcp_pins(self) -> list[McpPinRow]:
        return [McpPinRow(*row) for row in await self._all(f"SELECT {MCP_PIN_COLUMNS} FROM mcp_pins")]

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
