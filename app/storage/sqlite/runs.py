"""The events of runs in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import chain, islice

from app.storage.runs import OF_CALLS, EventRow
from app.storage.sql.columns import Select, names, select
from app.storage.sql.runs import SqlRuns
from app.storage.sqlite.commit_queue import CommitQueue
from app.storage.sqlite.database import INSERT_EVENT
from app.storage.sqlite.recent_events import behind, unpacked

EVENTS = select(EventRow, "events", "WHERE run = ? AND seq > ? ORDER BY seq")
CALL_EVENTS = select(
    EventRow,
    "events",
    f"WHERE run = ? AND type IN {OF_CALLS} AND json_extract(data, '$.call') = ? ORDER BY seq",
)
LAST_EVENTS_OF = Select(
    f"""
    SELECT {names(EventRow, "events")} FROM events JOIN runs ON runs.id = events.run
    WHERE runs.session = ? AND runs.created <= ? AND events.type = ?
    ORDER BY runs.created DESC, runs.rowid DESC, events.seq DESC LIMIT ?
    """,
    EventRow,
)


def first_events(connection: sqlite3.Connection, run: str, after: int, limit: int) -> list[EventRow]:
    """Return the first events behind `after` that stored rows hold, and read no more rows than these need."""
    with closing(connection.execute(EVENTS.sql, (run, after))) as rows:
        return list(islice(unpacked((EVENTS.row(*row) for row in rows), after), limit))


class SQLiteRuns(CommitQueue, SqlRuns):
    """Events are read from the rows that are settled, and behind them from `_recent`.

    What is recent is looked up first: if it is settled meanwhile, the rows have it as well.
    """

    _untrusted = "json_extract(message, '$.untrusted')"

    async def events(self, run: str, after: int, limit: int) -> list[EventRow]:
        recent = self._recent.of(run)
        if recent and recent[0].seq <= after + 1:
            return behind(after, recent)[:limit]
        async with self._named_failures():  # in one statement: the log may be joined at any time
            events = await self._reader.call(first_events, run, after, limit)
        if len(events) < limit:
            events += behind(events[-1].seq if events else after, recent)
        return events[:limit]

    async def last_seq(self, run: str) -> int:
        if recent := self._recent.of(run):
            return recent[-1].seq
        return await self._last_settled(run)

    async def _calls_of(self, run: str, kind: str) -> set[str]:
        recent = [row.data for row in self._recent.of(run) if row.type == kind]
        rows = await self._all("SELECT data FROM events WHERE run = ? AND type = ?", run, kind)
        return {json.loads(data)["call"] for data in chain(recent, (row[0] for row in rows))}

    async def events_of(self, session: str, kind: str, limit: int) -> list[EventRow]:
        runs = [row.id for row in await self.runs(session)]
        recent = [row for run in runs for row in self._recent.of(run) if row.type == kind]
        parts = await self.parts(session)
        rows = [row for part in parts for row in await self._rows(LAST_EVENTS_OF, *part, kind, limit)]
        order = {run: place for place, run in enumerate(runs)}  # of two with the same number one was just settled
        events = {(order.get(row.run, -1), row.seq): row for row in (*recent, *rows)}
        return [events[place] for place in sorted(events)][-limit:]

    async def call_events(self, run: str, call: str) -> list[EventRow]:
        recent = [row for row in self._recent.of(run) if row.type in OF_CALLS and json.loads(row.data)["call"] == call]
        rows = await self._rows(CALL_EVENTS, run, call)
        return rows + [row for row in recent if not rows or row.seq > rows[-1].seq]

    async def replace_events(self, run: str, rows: Sequence[EventRow]) -> None:
        if self._recent.of(run):  # else these would get rows for a second time, which the table refuses
            await self.settle()
        async with self._transaction():
            updated = await self._writer.execute("UPDATE runs SET joined = 1 WHERE id = ?", (run,))
            if not updated.rowcount:
                return  # deleted while its log was being joined: nothing of it may be restored
            await self._writer.execute("DELETE FROM events WHERE run = ?", (run,))
            await self._writer.executemany(INSERT_EVENT.sql, list(map(INSERT_EVENT.values, rows)))
