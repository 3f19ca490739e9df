"""Runs, events, inboxes and idempotency keys in SQLite."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from app.storage.changes import Change
from app.storage.runs import EventRow, InboxRow, InboxTaken, KeyRow, RunBegan, RunEnded, RunRow
from app.storage.sqlite.columns import Select, Write, delete, insert, names, select, update, upsert
from app.storage.sqlite.commit_queue import INSERT_EVENT, CommitQueue
from app.storage.sqlite.recent_events import OF_CALLS, behind, unpacked

WRITES: dict[type[Change], Write] = {
    RunRow: insert("runs", RunRow),
    RunBegan: Write("UPDATE runs SET state = 'running' WHERE id = ?", lambda change: (change.id,)),
    RunEnded: update("runs", RunEnded, "id"),
    InboxRow: insert("inbox", InboxRow),
    InboxTaken: delete("inbox", InboxTaken),
    KeyRow: upsert("idempotency", KeyRow, "principal", "key"),
}

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
LAST_EVENTS_OF = Select(
    f"""
    SELECT {names(EventRow, "events")} FROM events JOIN runs ON runs.id = events.run
    WHERE runs.session = ? AND events.type = ? ORDER BY runs.created DESC, runs.rowid DESC, events.seq DESC LIMIT ?
    """,
    EventRow,
)
INBOX = select(InboxRow, "inbox", "WHERE run = ? ORDER BY position")
KEY = select(KeyRow, "idempotency", "WHERE principal = ? AND key = ?")


def first_events(after: int, limit: int, rows: Iterable[Sequence[Any]]) -> list[EventRow]:
    """Return the first events behind `after` that stored rows hold, and read no more rows than these need."""
    return list(islice(unpacked((EVENTS.row(*row) for row in rows), after), limit))


class SQLiteRuns(CommitQueue):
    """Events are read from the rows that are settled, and behind them from `_recent`.

    What is recent is looked up first: if it is settled meanwhile, the rows have it as well.
    """

    async def run(self, run: str) -> RunRow | None:
        return await self._lookup_changed(RUN, run)

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
        if recent and recent[0].seq <= after + 1:
            return behind(after, recent)[:limit]
        async with self._named_failures():  # in one statement: the log may be joined at any time
            events = await self._reader.first((EVENTS.sql, (run, after)), partial(first_events, after, limit))
        if len(events) < limit:
            events += behind(events[-1].seq if events else after, recent)
        return events[:limit]

    async def last_seq(self, run: str) -> int:
        if recent := self._recent.of(run):
            return recent[-1].seq
        return await self._last_settled(run)

    async def handed_calls(self, run: str) -> set[str]:
        return await self._calls_of(run, "tool.handed")

    async def started_calls(self, run: str) -> set[str]:
        return await self._calls_of(run, "tool.started")

    async def _calls_of(self, run: str, kind: str) -> set[str]:
        recent = [row.data for row in self._recent.of(run) if row.type == kind]
        rows = await self._all("SELECT data FROM events WHERE run = ? AND type = ?", run, kind)
        return {json.loads(data)["call"] for data in chain(recent, (row[0] for row in rows))}

    async def events_of(self, session: str, kind: str, limit: int) -> list[EventRow]:
        runs = [row.id for row in await self.runs(session)]
        recent = [row for run in runs for row in self._recent.of(run) if row.type == kind]
        rows = await self._rows(LAST_EVENTS_OF, session, kind, limit)
        order = {run: place for place, run in enumerate(runs)}  # of two with the same number one was just settled
        events = {(order.get(row.run, -1), row.seq): row for row in (*recent, *rows)}
        return [events[place] for place in sorted(events)][-limit:]

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
