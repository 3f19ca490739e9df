"""The log of a run that keeps none: it lives in memory as long as its run is under way or watched.

What the run has used and what was decided in it is durable as in any other run: only its conversation and its events
are kept by nobody.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from app.log.event_writer import EventWriter, RunLog
from app.storage.audit import AuditRow
from app.storage.changes import Change
from app.storage.usage import ModelUsage, UsageAdded

OUTLIVING = (AuditRow, ModelUsage, UsageAdded)
MOST_EVENTS = 1 << 20  # more than an answer has characters


class UnlistedWriter:
    """Publishes events at once, together if they come together, and passes on to `journal` what outlives the run."""

    keeps = MOST_EVENTS
    documents = False

    def __init__(self, journal: EventWriter) -> None:
        self.redactor = journal.redactor
        self._journal = journal
        self._waiting: RunLog | None = None
        self._outliving: list[Change] = []

    @property
    def full(self) -> bool:
        return False

    def announce(self, log: RunLog) -> None:
        if self._waiting is None:
            self._waiting = log
            asyncio.get_running_loop().call_soon(self._publish)

    async def flush(self) -> None:
        """Make durable what outlives the run: all of it is written here, so that no failure goes unseen.

        Raises StoreFailed.
        """
        self._publish()
        if self._outliving:
            changes, self._outliving = self._outliving, []
            for change in changes:
                self._journal.put(change)
            await self._journal.flush()

    async def room(self) -> None:
        """There is always room: an answer has a limit."""

    def _publish(self) -> None:
        if (log := self._waiting) is None:
            return
        self._waiting = None
        changes, events = log.take()
        self._outliving += map(_of_no_run, filter(_outlives, changes))
        log.publish(events)


def _outlives(change: Change) -> bool:
    return isinstance(change, OUTLIVING)


def _of_no_run(change: Change) -> Change:
    """Add usage to that of runs that are deleted: a row of its own would never be deleted."""
    return replace(change, run="", session="") if isinstance(change, ModelUsage) else change
