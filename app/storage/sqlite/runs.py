"""Runs, events, inboxes and idempotency keys in SQLite."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from app.storage.changes import Change
from app.storage.runs import EventRow, InboxRow, InboxTaken, KeyRow, RunBegan, RunEnded, RunRow
from app.storage.sqlite.columns import Write, delete, insert, marks, select, update, upsert
from app.storage.sqlite.connections import Statement
from app.storage.sqlite.database import FAILURES, Database
from app.storage.sqlite.recent_events import (
    OF_CALLS,
    EventChanges,
    RecentEvents,
    behind,
    runs_in,
    unpacked,
)

Plan = tuple[list[Statement], EventChanges]
MakePlan = Callable[[], Plan]  # called anew in its turn, since others have committed meanwhile
INSERT_EVENT = insert("events", EventRow)
WRITES: dict[type[Change], Write] = {
    RunRow: insert("runs", RunRow),
    RunBegan: Write("UPDATE runs SET state = 'running' WHERE id = ?", lambda change: (change.id,)),
    RunEnded: update("runs", RunEnded, "id"),
    InboxRow: insert("inbox", InboxRow),
    InboxTaken: delete("inbox", InboxTaken),
    KeyRow: upsert("idempotency", KeyRow, "principal", "key"),
}
ROWS_AT_ONCE = (64, 16, 4, 1)  # of a statement; each connection keeps one for each number, of up to 80 KB


@cache
def insert_events(count: int) -> str:
    """Insert many rows in one step: between two steps another thread may take the interpreter, and keep it for long."""
    return INSERT_EVENT.sql + f", ({marks(EventRow)})" * (count - 1)


INSERT_BATCH = "INSERT INTO event_batches (number, events) VALUES (?, ?)"
DELETE_ALL_BATCHES = "DELETE FROM event_batches"
DELETE_BATCHES = f"{DELETE_ALL_BATCHES} WHERE number <= ?"
MOST_DELETED = 64  # batches in one transaction on the event loop
MOST_SETTLED = 4  # runs in one such transaction

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
        self._oldest_batch = 1  # number of the first that may not be deleted yet

    async def _connect(self) -> None:
        await super()._connect()
        batches = dict(await self._all("SELECT number, events FROM event_batches ORDER BY number"))
        self._recent.load(batches, {run: await self._last_settled(run) for run in runs_in(batches.values())})
        self._oldest_batch = min(batches, default=1)

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
            yield INSERT_BATCH, [(events.number, events.batch)]
        left = events.rows
        for count in ROWS_AT_ONCE:
            while len(left) >= count:
                some, left = left[:count], left[count:]
                yield insert_events(count), [tuple(chain.from_iterable(map(INSERT_EVENT.values, some)))]

    async def _commit(self, plan: MakePlan) -> None:
        """Commit a plan at once, or when it has its turn."""
        try:
            statements, planned = plan()
            done = self._commit_at_once(statements)
        except FAILURES as error:
            raise self._failure(error) from error
        if done:
            self._recent.apply(planned)
        else:
            await self._commit_in_turn(plan)

    async def _commit_in_turn(self, plan: MakePlan) -> None:
        """Be whole, even if the caller is cancelled: what is durable has to be among the recent events as well."""
        await asyncio.shield(asyncio.create_task(self._commit_in_thread(plan)))

    async def _commit_in_thread(self, plan: MakePlan) -> None:
        async with self._one_writer, self._named_failures():
            statements, planned = plan()
            await self._writer.write(statements)
            self._recent.apply(planned)

    async def _settle(self) -> None:
        """Give every event a row, and delete the batches."""
        await self._commit_in_turn(self._plan_to_settle)

    def _plan_to_settle(self) -> Plan:
        planned = self._recent.plan_all()
        return [*self._event_statements(planned), (DELETE_ALL_BATCHES, [()])], planned

    async def _delete_batches(self) -> None:
        """Delete the aged batches, and let those of now age: as a rule their runs settle until the next time."""
        while self._recent.has_aged:
            await self._commit(self._plan_to_settle_some)
            await asyncio.sleep(0)
        while self._oldest_batch <= self._recent.aged_batch:
            await self._commit(self._plan_to_delete)
            self._oldest_batch += MOST_DELETED
            await asyncio.sleep(0)
        self._oldest_batch = self._recent.aged_batch + 1
        self._recent.age()

    def _plan_to_settle_some(self) -> Plan:
        planned = self._recent.plan_aged(MOST_SETTLED)
        return list(self._event_statements(planned)), planned

    def _plan_to_delete(self) -> Plan:
        last = min(self._oldest_batch + MOST_DELETED - 1, self._recent.aged_batch)
        return [(DELETE_BATCHES, [(last,)])], self._recent.plan(())
