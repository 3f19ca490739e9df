"""The ends of runs that the store refused, until it takes them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from app.policy.approvals import Approvals
from app.storage.changes import Change, ChangeWriter, StoreFailed
from app.storage.runs import EventRow, RunEnded

logger = logging.getLogger(__name__)


class TerminalRetry:
    def __init__(self, store: ChangeWriter, approvals: Approvals) -> None:
        self._store = store
        self._approvals = approvals
        self._ends: dict[str, tuple[EventRow, RunEnded, *tuple[Change, ...]]] = {}
        self._keeping = asyncio.Lock()

    def add(self, run: str, failure: EventRow, others: Sequence[Change] = ()) -> None:
        """`failure` is the terminal event that the run's watchers have received; `others` are written with it."""
        self._ends[run] = failure, RunEnded(run, "storage_failed", time.time()), *others

    def forget(self, run: str) -> None:
        self._ends.pop(run, None)

    def forget_all(self) -> None:
        """The runs are another server's now."""
        self._ends.clear()

    def events(self, run: str, after: int) -> list[EventRow]:
        """The terminal event, if it is still to be told behind `after`."""
        return [row for row in self._ends.get(run, ())[:1] if isinstance(row, EventRow) and row.seq > after]

    async def keep(self, run: str) -> None:
        """Store the end of this run, if it is here, even if the caller is cancelled. Raises StoreFailed."""
        if run in self._ends:
            await asyncio.shield(asyncio.create_task(self._keep(run)))

    async def _keep(self, run: str) -> None:
        async with self._keeping:
            if run in self._ends:
                await self._approvals.close_pending(run)
                if ends := self._ends.get(run):  # else forgotten meanwhile
                    await self._store.write(ends)
                    self._ends.pop(run, None)

    async def keep_all(self) -> None:
        """Try all of them; a store that still refuses says so to whoever wants something of it."""
        try:
            for run in list(self._ends):
                await self.keep(run)
        except StoreFailed as failure:
            logger.error("terminal events of %d runs not stored: %s", len(self._ends), failure)
