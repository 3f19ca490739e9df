"""Runs, events, inboxes and idempotency keys in SQLite."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from app.storage.runs import EventRow, InboxRow, InboxTaken, KeyRow, RunBegan, RunEnded, RunRow
from app.storage.sqlite.columns import Write, delete, insert, marks, select, update, upsert
from app.storage.sqlite.connections import Statement
from app.storage.sqlite.database import Database
from app.storage.sqlite.recent_events import (
    OF_CALLS,
    EventChanges,
    RecentEvents,
    behind,
    runs_in,
    unpacked,
)

INSERT_EVENT = insert("events", EventRow)
WRITES = {
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


INSERT_BATCH = "INSERT INTO event_batches (events) VALUES (?)"
DELETE_BATCHES: Statement = ("DELETE FROM event_batches", [()])

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
EVENTS = select(EventRow, "events", "WHERE run = ? AND seq > ? ORDER BY seq")
CALL_EVENTS = select(
    EventRow,
    "events",
    f"WHERE run = ? AND type IN {OF_CALLS} AND json_extract(data, '$.call') = ? ORDER BY seq",
)
INBOX = select(InboxRow, "inbox", "WHERE run = ? ORDER BY position")
KEY = select(KeyRow, "idempotency", "WHERE principal = ? AND key = ?")


def first_events(after: int, limit: int, rows: Iterable[Sequence[Any]]) -> list[EventRow]:
    """Return the first events behind `after` that stored rows hold, and read no more rows than these need."""
    return list(islice(unpacked((EVENTS.row(*row) for row in rows), after), limit))


class SQLiteRuns(Database):
    """Events are read from the rows that are settled, and behind them from `_recent`.

    What is recent is looked up first: if it is settled meanwhile, the rows have it as well.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._recent = RecentEvents()

    async def _connect(self) -> None:
        await super()._connect()
        batches = [row[0] for row in await self._all("SELECT events FROM event_batches ORDER BY number")]
        self._recent.load(batches, {run: await self._last_settled(run) for run in runs_in(batches)})

    async def run(self, run: str) -> RunRow | None:
        return await self._lookup(RUN, run)

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
        recent = self._recent.of(run)
        async with self._named_failures():  # in one statement: the log may be joined at any time
            events = await self._reader.first((EVENTS.sql, (run, after)), partial(first_events, after, limit))
        if len(events) < limit:
            events += behind(events[-1].seq if events else after, recent)
        return events[:limit]

    async def last_seq(self, run: str) -> int:
        if recent := self._recent.of(run):
            return recent[-1].seq
        return await self._last_settled(run)

    async def _last_settled(self, run: str) -> int:
        rows = await self._all("SELECT COALESCE(MAX(seq), 0) FROM events WHERE run = ?", run)
        return int(rows[0][0])

    async def started_calls(self, run: str) -> set[str]:
        recent = [row.data for row in self._recent.of(run) if row.type == "tool.started"]
        rows = await self._all("SELECT data FROM events WHERE run = ? AND type = 'tool.started'", run)
        return {json.loads(data)["call"] for data in chain(recent, (row[0] for row in rows))}

    async def call_events(self, run: str, call: str) -> list[EventRow]:
        recent = [row for row in self._recent.of(run) if row.type in OF_CALLS and json.loads(row.data)["call"] == call]
        rows = await self._rows(CALL_EVENTS, run, call)
        return rows + [row for row in recent if not rows or row.seq > rows[-1].seq]

    async def bulky_runs(self, ended_before: float, limit: int) -> list[str]:
        query = "SELECT id FROM runs WHERE joined = 0 AND ended < ? ORDER BY ended LIMIT ?"
        return [row[0] for row in await self._all(query, ended_before, limit)]

    async def replace_events(self, run: str, rows: Sequence[EventRow]) -> None:
        if self._recent.of(run):  # else these would get rows for a second time, which the table refuses
            await self._settle()
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

    def _event_statements(self, events: EventChanges) -> Iterator[Statement]:
        if events.batch:
            yield INSERT_BATCH, [(events.batch,)]
        for at in range(0, len(events.rows), MOST_AT_ONCE):
            some = events.rows[at : at + MOST_AT_ONCE]
            yield insert_events(len(some)), [tuple(chain.from_iterable(map(INSERT_EVENT.values, some)))]

    async def _settle(self) -> None:
        """Give every event a row, and delete the batches: whole, even if the caller is cancelled."""
        await asyncio.shield(asyncio.create_task(self._settle_in_turn()))

    async def _settle_in_turn(self) -> None:
        async with self._one_writer, self._named_failures():
            planned = self._recent.plan_all()
            await self._writer.write([*self._event_statements(planned), DELETE_BATCHES])
            self._recent.apply(planned)
