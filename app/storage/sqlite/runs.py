"""Runs, events, inboxes and idempotency keys in SQLite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

from app.storage.runs import EventRow, InboxRow, InboxTaken, KeyRow, RunBegan, RunEnded, RunRow
from app.storage.sqlite.columns import Write, delete, insert, marks, select, update, upsert
from app.storage.sqlite.database import Database

INSERT_EVENT = insert("events", EventRow)
WRITES = {
    EventRow: INSERT_EVENT,
    RunRow: insert("runs", RunRow),
    RunBegan: Write("UPDATE runs SET state = 'running' WHERE id = ?", lambda change: (change.id,)),
    RunEnded: update("runs", RunEnded, "id"),
    InboxRow: insert("inbox", InboxRow),
    InboxTaken: delete("inbox", InboxTaken),
    KeyRow: upsert("idempotency", KeyRow, "principal", "key"),
}
MOST_AT_ONCE = 64  # rows of a statement: SQLite takes so many values, and each number of them is a text to keep


@cache
def insert_events(count: int) -> str:
    """Insert many rows in one step: between two steps another thread may take the interpreter, and keep it for long."""
    return INSERT_EVENT.sql + f", ({marks(EventRow)})" * (count - 1)


# Runs of the same time are in the order in which they were inserted.
OTHER_RUN = "(SELECT created, rowid FROM runs WHERE id = ?)"
RUN = select(RunRow, "runs", "WHERE id = ?")
RUNS = select(RunRow, "runs", "WHERE session = ? ORDER BY created, rowid")
FIRST_RUN = select(RunRow, "runs", "WHERE session = ? ORDER BY created, rowid LIMIT 1")
NEXT_RUN = select(
    RunRow, "runs", f"WHERE session = ? AND (created, rowid) > {OTHER_RUN} ORDER BY created, rowid LIMIT 1"
)
LAST_RUNS = select(RunRow, "runs", "WHERE session = ? ORDER BY created DESC, rowid DESC LIMIT ?")
RUNS_BEFORE = select(
    RunRow, "runs", f"WHERE session = ? AND (created, rowid) < {OTHER_RUN} ORDER BY created DESC, rowid DESC LIMIT ?"
)
UNFINISHED = select(RunRow, "runs", "WHERE state IN ('queued', 'running') ORDER BY created")
EVENTS = select(EventRow, "events", "WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?")
CALL_EVENTS = select(
    EventRow,
    "events",
    "WHERE run = ? AND type IN ('tool.started', 'tool.finished', 'tool.rejected')"
    " AND json_extract(data, '$.call') = ? ORDER BY seq",
)
INBOX = select(InboxRow, "inbox", "WHERE run = ? ORDER BY position")
KEY = select(KeyRow, "idempotency", "WHERE principal = ? AND key = ?")


class SQLiteRuns(Database):
    async def run(self, run: str) -> RunRow | None:
        return await self._row(RUN, run)

    async def runs(self, session: str) -> list[RunRow]:
        return await self._rows(RUNS, session)

    async def next_run(self, session: str, after: str | None) -> RunRow | None:
        if after is None:
            return await self._row(FIRST_RUN, session)
        return await self._row(NEXT_RUN, session, after)

    async def last_runs(self, session: str, before: str | None, limit: int) -> list[RunRow]:
        if before is None:
            return await self._rows(LAST_RUNS, session, limit)
        return await self._rows(RUNS_BEFORE, session, before, limit)

    async def unfinished_runs(self) -> list[RunRow]:
        return await self._rows(UNFINISHED)

    async def events(self, run: str, after: int, limit: int) -> list[EventRow]:
        return await self._rows(EVENTS, run, after, limit)

    async def last_seq(self, run: str) -> int:
        rows = await self._all("SELECT COALESCE(MAX(seq), 0) FROM events WHERE run = ?", run)
        return int(rows[0][0])

    async def started_calls(self, run: str) -> set[str]:
        rows = await self._all("SELECT data FROM events WHERE run = ? AND type = 'tool.started'", run)
        return {json.loads(row[0])["call"] for row in rows}

    async def call_events(self, run: str, call: str) -> list[EventRow]:
        return await self._rows(CALL_EVENTS, run, call)

    async def bulky_runs(self, ended_before: float, limit: int) -> list[str]:
        query = "SELECT id FROM runs WHERE joined = 0 AND ended < ? ORDER BY ended LIMIT ?"
        return [row[0] for row in await self._all(query, ended_before, limit)]

    async def replace_events(self, run: str, rows: Sequence[EventRow]) -> None:
        async with self._transaction():
            updated = await self._writer.execute("UPDATE runs SET joined = 1 WHERE id = ?", (run,))
            if not updated.rowcount:
                return  # deleted while its log was being joined: nothing of it may be restored
            await self._writer.execute("DELETE FROM events WHERE run = ?", (run,))
            await self._writer.executemany(INSERT_EVENT.sql, list(map(INSERT_EVENT.values, rows)))

    async def inbox(self, run: str) -> list[InboxRow]:
        return await self._rows(INBOX, run)

    async def key(self, principal: str, key: str) -> KeyRow | None:
        return await self._row(KEY, principal, key)
