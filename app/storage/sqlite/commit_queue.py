"""Transactions: what each of them writes at once, and what it leaves for later.

At once it writes one row of `event_batches`, with its events and with other changes: see `recent_events.py` and
`pending_changes.py`. Both reach their tables some transactions later, and batches are deleted when all of theirs has.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from app.storage.changes import Change, StoreFailed
from app.storage.runs import EventRow
from app.storage.sql.columns import marks
from app.storage.sql.rows import Query
from app.storage.sqlite.connections import Statement, read, read_ahead, transact
from app.storage.sqlite.database import FAILURES, INSERT_EVENT, Database, is_full
from app.storage.sqlite.pending_changes import APPLIED, PendingChanges
from app.storage.sqlite.recent_events import EventChanges, RecentEvents, runs_in
from tools.process.process_tree import run_shielded

INSERT_BATCH = "INSERT INTO event_batches (number, events, changes) VALUES (?, ?, ?)"
DELETE_ALL_BATCHES = "DELETE FROM event_batches"
DELETE_BATCHES = f"{DELETE_ALL_BATCHES} WHERE number <= ?"
MOST_DELETED = 64  # batches in one transaction on the event loop
MOST_SETTLED = 4  # runs in one such transaction
MOST_ENDED = 16  # runs whose events wait to be settled
CHANGES = "SELECT changes FROM event_batches WHERE changes IS NOT NULL ORDER BY number"
ROWS_AT_ONCE = (64, 16, 4, 1)  # of a statement; each connection keeps one for each number, of up to 80 KB

logger = logging.getLogger(__name__)


class Plan(Struct, frozen=True):
    """A transaction: its statements, and what they do. `waiting` are the changes that are not in their tables then."""

    statements: list[Statement]
    events: EventChanges
    waiting: Sequence[Change] = ()
    text: str = ""  # their JSON
    in_tables: bool = False  # others that wait must be in their tables before


MakePlan = Callable[[], Plan]  # called anew in its turn, since others have committed meanwhile


class CommitQueue(Database):
    """Transactions in the order in which they come.

    Small ones are committed by the event loop's thread, others by the writer's, one at a time.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._recent = RecentEvents()
        self._pending = PendingChanges()
        self._oldest_batch = 1  # number of the first that may not be deleted yet

    async def _connect(self) -> None:
        await super()._connect()
        batches = dict(await self._all("SELECT number, events FROM event_batches ORDER BY number"))
        self._recent.load(batches, {run: await self._last_settled(run) for run in runs_in(batches.values())})
        self._oldest_batch = min(batches, default=1)
        if not self._visitor:
            self._pending.load([row[0] for row in await self._all(CHANGES)])
            await self._catch_up()

    async def _each(self, *queries: Query) -> list[list[Any]]:
        """Read what cannot be applied as if it were: a visitor leaves that to the server, and a disk may be full."""
        if not self._visitor:
            try:
                return await super()._each(*queries)
            except StoreFailed as failure:
                if not is_full(failure):
                    raise
        async with self._one_writer, self._named_failures():
            return await self._writer.call(read_ahead, self._waiting, queries)

    def _waiting(self, connection: sqlite3.Connection) -> list[Statement]:
        """The statements that apply the changes of the batches."""
        pending = PendingChanges()
        pending.load(row[0] for row in connection.execute(CHANGES))
        return [(lenient(sql), rows) for sql, rows in self._statements(pending.merged())]

    async def _last_settled(self, run: str) -> int:
        query = "SELECT COALESCE(MAX(seq), 0) FROM events WHERE run = ?"
        async with self._named_failures():
            [[(seq,)]] = await self._reader.call(read, [(query, (run,))])
        return int(seq)

    def _event_statements(self, events: EventChanges, changes: str = "") -> Iterator[Statement]:
        """The statements for events, and for other changes in the same batch."""
        if events.batch or changes:
            yield INSERT_BATCH, [(events.number, events.batch, changes or None)]
        left = events.rows
        for count in ROWS_AT_ONCE:
            while len(left) >= count:
                some, left = left[:count], left[count:]
                yield insert_events(count), [tuple(chain.from_iterable(map(INSERT_EVENT.values, some)))]

    async def _commit(self, make: MakePlan) -> None:
        """Commit a plan at once, or when it has its turn."""
        self._check_files()
        try:
            done = not self._one_writer.locked() and self._commit_now(make)
        except FAILURES as error:
            raise self._failure(error) from error
        if not done:
            await self._commit_in_turn(make)

    def _commit_now(self, make: MakePlan) -> bool:
        plan = make()
        if self._must_catch_up(plan):
            if not self._catch_up_at_once():
                return False
            plan = make()
        if done := self._commit_at_once(plan.statements):
            self._committed(plan)
        return done

    async def _commit_in_turn(self, make: MakePlan) -> None:
        """Be whole, even if the caller is cancelled: what is durable has to be among the recent events as well."""
        await asyncio.shield(asyncio.create_task(self._commit_in_thread(make)))

    async def _commit_in_thread(self, make: MakePlan) -> None:
        async with self._one_writer, self._named_failures():
            if self._must_catch_up(make()):
                await self._catch_up_now()
            plan = make()
            await self._writer.call(transact, plan.statements)
            self._committed(plan)

    def _committed(self, plan: Plan) -> None:
        self._recent.apply(plan.events)
        if plan.waiting:
            self._pending.add(plan.waiting, plan.text)

    def _must_catch_up(self, plan: Plan) -> bool:
        return plan.in_tables or self._pending.full or len(self._recent.ended) >= MOST_ENDED

    async def _catch_up(self) -> None:
        if self._pending and (self._one_writer.locked() or not self._catch_up_at_once()):
            await asyncio.shield(asyncio.create_task(self._catch_up_in_turn()))

    async def _catch_up_in_turn(self) -> None:
        async with self._one_writer, self._named_failures():
            await self._catch_up_now()

    async def _catch_up_now(self) -> None:
        if not self._catch_up_at_once():
            await run_shielded(self._catch_up_in_thread())  # else what is applied would be applied again

    async def _catch_up_in_thread(self) -> None:
        plan = self._plan_to_catch_up()
        try:
            await self._writer.call(transact, plan.statements)
        except sqlite3.IntegrityError as error:  # it must not stand in the way of all that come behind it
            logger.error("an accepted change is lost, because the database %s refuses it: %s", self._path, error)
            await self._writer.call(transact, [(lenient(sql), rows) for sql, rows in plan.statements])
        self._caught_up(plan)

    def _catch_up_at_once(self) -> bool:
        """Return True if nothing waits any more. No other writer may be at work."""
        if not self._pending and not self._recent.ended:
            return True
        plan = self._plan_to_catch_up()
        try:
            done = self._commit_at_once(plan.statements)
        except FAILURES:  # the writer's connection has the last word
            return False
        if done:
            self._caught_up(plan)
        return done

    def _plan_to_catch_up(self) -> Plan:
        """Apply the changes that wait, and settle the runs that have ended."""
        events = self._recent.plan_settled(self._recent.ended)
        return Plan([*self._statements(self._pending.merged()), *self._event_statements(events, APPLIED)], events)

    def _caught_up(self, plan: Plan) -> None:
        self._recent.apply(plan.events)
        self._pending.clear()

    async def settle(self) -> None:
        """Give every event a row, and delete the batches. Not of a visitor: they are the server's."""
        assert not self._visitor
        await self._commit_in_turn(self._plan_to_settle)

    def _plan_to_settle(self) -> Plan:
        planned = self._recent.plan_all()
        return Plan([*self._event_statements(planned), (DELETE_ALL_BATCHES, [()])], planned, in_tables=True)

    async def _delete_batches(self) -> None:
        """Delete the aged batches, and let those of now age: as a rule their runs settle until the next time."""
        await self._catch_up()
        while self._recent.aged:
            await self._commit(self._plan_to_settle_some)
            await asyncio.sleep(0)
        while self._oldest_batch <= self._recent.aged_batch:
            await self._commit(self._plan_to_delete)
            self._oldest_batch = min(self._oldest_batch + MOST_DELETED, self._recent.aged_batch + 1)
            await asyncio.sleep(0)
        self._recent.age()

    def _plan_to_settle_some(self) -> Plan:
        planned = self._recent.plan_settled(islice(self._recent.aged, MOST_SETTLED))
        return Plan(list(self._event_statements(planned)), planned)

    def _plan_to_delete(self) -> Plan:
        last = min(self._oldest_batch + MOST_DELETED - 1, self._recent.aged_batch)
        return Plan([(DELETE_BATCHES, [(last,)])], self._recent.plan(()))


@cache
def insert_events(count: int) -> str:
    """Insert many rows in one step: between two steps another thread may take the interpreter, and keep it for long."""
    return INSERT_EVENT.sql + f", ({marks(EventRow)})" * (count - 1)


def lenient(sql: str) -> str:
    return sql.replace("INSERT INTO", "INSERT OR IGNORE INTO")
