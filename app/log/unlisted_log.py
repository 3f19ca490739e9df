"""The log of a run that keeps none: it lives in memory as long as its run is under way or watched.

What the run has used and what was decided in it is durable as in any other run: only its conversation and its events
are not kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable
from operator import attrgetter

from msgspec.structs import replace

from app.core.events import TERMINAL
from app.log.event_writer import NO_LISTENERS, PAGE, EventWriter, Listeners, RunLog, Watcher
from app.log.log_compaction import joined_rows, rest_after
from app.log.redacted_rows import redacted_row
from app.log.run_stream import page_of
from app.storage.audit import AuditRow
from app.storage.changes import Change
from app.storage.runs import EventRow
from app.storage.usage import ModelUsage, UsageAdded

OUTLIVING = (AuditRow, ModelUsage, UsageAdded)
LOOSE = 128  # events that are rows of their own, before the older half of them is joined
SEQ = attrgetter("seq")


class UnlistedLog(RunLog):
    """All of a run's events. They become rows when they are read, so that those that came together leave together.

    Watched from its beginning also after its end: rows that are not the newest are joined, to take little memory.
    """

    _loose = 0  # rows at the end that have not been joined

    def put(self, change: Change) -> None:
        """Pass on what outlives the run; nothing else is kept."""
        if isinstance(change, ModelUsage):  # added to that of deleted runs: no one would ever delete a row of its own
            change = replace(change, run="", session="")
        if isinstance(change, OUTLIVING):
            self._changes.append(redacted_row(change, self._journal.redactor))

    async def pages(self, watcher: Watcher) -> AsyncGenerator[list[EventRow], None]:
        """The events behind the watcher, as they come, up to the terminal one; not what it writes."""
        while True:
            self.publish_pending()
            if self.last_seq > watcher.seq:
                rows = self._behind(watcher.seq)
                watcher.seq = rows[-1].seq
                yield rows
                if rows[-1].type in TERMINAL:
                    return
            elif self.ended:
                return
            else:
                await self.news(watcher)

    def wake(self, text: EventRow | None = None) -> None:
        if self._pending and not self.ended and any(watcher and watcher.write for watcher in self._waiting.values()):
            self.publish_pending()
        else:
            super().wake(text)

    def publish_pending(self) -> None:
        if self._pending:
            self.publish(self.take_events())

    def _keep(self, rows: list[EventRow]) -> None:
        self._kept += rows
        self._loose += len(rows)
        if self._loose > LOOSE:
            loose, self._loose = self._kept[-self._loose :], LOOSE // 2
            del self._kept[-len(loose) :]
            self._kept += joined_rows(loose[: -self._loose]) + loose[-self._loose :]

    def _behind(self, cursor: int) -> list[EventRow]:
        last = self._kept[-1]
        if last.seq == cursor + 1:  # nearly always
            return [last]
        begin = bisect_right(self._kept, cursor, key=SEQ)
        first, *more = self._kept[begin : begin + PAGE]
        return page_of([rest_after(first, cursor), *more])


class UnlistedWriter:
    """Announces events to readers, and makes durable in `journal` what outlives the run."""

    documents = False
    full = False  # an answer has a limit

    def __init__(self, journal: EventWriter) -> None:
        self.redactor = journal.redactor
        self._journal = journal
        self._logs: list[UnlistedLog] = []

    def open_log(self, run: str, on_failure: Callable[[], None], listeners: Listeners = NO_LISTENERS) -> UnlistedLog:
        self._logs.append(log := UnlistedLog(run, self, on_failure, listeners))
        return log

    def announce(self, log: RunLog, *, hurries: bool = True) -> None:
        log.wake()

    async def flush(self) -> None:
        """Make durable what outlives the run: all of it is written here, so that no failure goes unseen.

        Raises StoreFailed.
        """
        changes = list[Change]()
        for log in self._logs:
            log.publish_pending()
            changes += log.take_changes([])
        for change in changes:
            self._journal.put(change)
        if changes:
            await self._journal.flush()

    async def room(self) -> None:
        """There is always room."""
