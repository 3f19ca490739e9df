"""The store in one SQLite file: an implementation of app.storage.store.Store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from app.storage.changes import Change, StoreFailed
from app.storage.runs import EventRow
from app.storage.sqlite import approvals, configuration, principals, runs, sessions
from app.storage.sqlite.approvals import SQLiteApprovals
from app.storage.sqlite.columns import Write
from app.storage.sqlite.configuration import SQLiteConfiguration
from app.storage.sqlite.connections import Statement
from app.storage.sqlite.database import FAILURES
from app.storage.sqlite.principals import SQLitePrincipals
from app.storage.sqlite.recent_events import EventChanges
from app.storage.sqlite.retention import SQLiteRetention
from app.storage.sqlite.sessions import SQLiteSessions

WRITES: dict[type[Change], Write] = {
    **runs.WRITES,
    **sessions.WRITES,
    **approvals.WRITES,
    **principals.WRITES,
    **configuration.WRITES,
}


COMMITS = 2048  # until the batches of events are deleted, and the write-ahead log is copied into the database

logger = logging.getLogger(__name__)


class SQLiteStore(SQLiteRetention, SQLiteSessions, SQLiteApprovals, SQLitePrincipals, SQLiteConfiguration):
    """Small changes are committed at once; what has to wait for the disk is done in between, by another thread."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._commits = 0
        self._tidying: asyncio.Task[None] | None = None

    async def write(self, changes: Sequence[Change]) -> None:
        try:
            statements, planned = self._plan(changes)
            done = self._commit_at_once(statements)
        except FAILURES as error:
            raise self._failure(error) from error
        if done:
            self._committed(planned)
        else:  # whole, even if the caller is cancelled: what is durable has to be among the recent events as well
            await asyncio.shield(asyncio.create_task(self._write_in_turn(changes)))

    async def _write_in_turn(self, changes: Sequence[Change]) -> None:
        async with self._one_writer, self._named_failures():
            statements, planned = self._plan(changes)
            await self._writer.write(statements)
            self._committed(planned)

    async def close(self) -> None:
        if self._tidying:
            await asyncio.wait([self._tidying])
        await super().close()

    def _plan(self, changes: Sequence[Change]) -> tuple[list[Statement], EventChanges]:
        events, others = list[EventRow](), list[Change]()
        for change in changes:
            if type(change) is EventRow:
                events.append(change)
            else:
                others.append(change)
        planned = self._recent.plan(events)
        return [*self._statements(others), *self._event_statements(planned)], planned

    def _statements(self, changes: Sequence[Change]) -> list[Statement]:
        """One statement for each group of neighbours of the same kind."""
        groups = ((WRITES[kind], rows) for kind, rows in groupby(changes, type))
        return [(write.sql, list(map(write.values, rows))) for write, rows in groups]

    def _committed(self, planned: EventChanges) -> None:
        self._recent.apply(planned)
        self._commits += 1
        if self._commits >= COMMITS and self._tidying is None:
            self._tidying = asyncio.create_task(self._tidy(), name="tidy the database")

    async def _tidy(self) -> None:
        """Settle all events and index all messages.

        The writer's connection copies the write-ahead log into the database as it commits.
        """
        self._commits = 0
        try:
            await self._settle()
            await self._index_messages()
            await self.check()  # begins the write-ahead log anew, which waits for the disk as well
        except StoreFailed as failure:
            logger.warning("recent events not settled, retrying later: %s", failure)
        finally:
            self._tidying = None
