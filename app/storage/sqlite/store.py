"""The store in one SQLite file: an implementation of app.storage.store.Store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from app.storage.changes import Change, StoreFailed
from app.storage.runs import EventRow
from app.storage.sql.aggregates import SqlAggregates
from app.storage.sqlite.commit_queue import Plan
from app.storage.sqlite.pending_changes import encoded
from app.storage.sqlite.retention import SQLiteRetention
from app.storage.sqlite.sessions import SQLiteSessions

COMMITS = 2048  # until the store is tidied
QUIET_S = 0.1  # without a commit, until what waits reaches its tables and the index of words
PAUSE_S = 0.02  # between two steps of that which make others wait for some milliseconds

logger = logging.getLogger(__name__)


class SQLiteStore(SQLiteRetention, SQLiteSessions, SqlAggregates):
    """Small changes are committed at once; what has to wait for the disk is done in between, by another thread."""

    spacing_s = 0.001

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._commits = 0
        self._tidying: asyncio.Task[None] | None = None
        self._look: asyncio.TimerHandle | None = None

    async def write(self, changes: Sequence[Change]) -> None:
        await self._commit(partial(self._plan, changes))
        self._commits += 1
        if self._commits >= COMMITS and self._tidying is None:
            self._tidying = asyncio.create_task(self._tidy(), name="tidy the database")
        if self._look is None:
            self._look_later()

    def _look_later(self) -> None:
        self._look = asyncio.get_running_loop().call_later(QUIET_S, self._look_for_work, self._commits)

    def _look_for_work(self, commits: int) -> None:
        """Use a time in which nothing is written. `commits` is their number at the last look."""
        if self._tidying or self._commits != commits:
            self._look_later()
        else:
            self._look = None
            self._tidying = asyncio.create_task(self._tidy(quiet=True), name="tidy the quiet database")

    async def close(self) -> None:
        self._closing.set()
        if self._look:
            self._look.cancel()
        if self._tidying:
            await asyncio.wait([self._tidying])
        with suppress(StoreFailed):  # what waits is durable
            await asyncio.create_task(self._catch_up_in_turn())  # behind the writes of callers who have left
        await super().close()

    def _plan(self, changes: Sequence[Change]) -> Plan:
        events, others = list[EventRow](), list[Change]()
        for change in changes:
            if type(change) is EventRow:
                events.append(change)
            else:
                others.append(change)
        planned = self._recent.plan(events)
        text = encoded(others) if others else ""
        if text is None or self._visitor:  # batches are the server's
            return Plan([*self._statements(others), *self._event_statements(planned)], planned, in_tables=True)
        return Plan(list(self._event_statements(planned, text)), planned, others, text)

    async def _tidy(self, *, quiet: bool = False) -> None:
        """Do what commits have put off, a little at a time: whatever writes must not wait for it."""
        try:
            if not quiet:
                self._commits = 0
                await self._copy_log()
                await self._delete_batches()
            await self._catch_up()
            await self._index_messages(PAUSE_S)
            if quiet:
                await self._shorten_log()
        except StoreFailed as failure:
            logger.warning("database not tidied, retrying later: %s", failure)
        finally:
            self._tidying = None
