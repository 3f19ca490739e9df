"""A run's events for who watches it: those of its log in memory, or those of the store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager

from app.core.events import TERMINAL
from app.log.event_writer import PAGE, RunLog, Watcher
from app.log.log_compaction import rest_after
from app.log.terminal_retry import TerminalRetry
from app.storage.runs import EventRow, RunStore

FIRST_PAGE = 16
PAGE_SIZE = 32_768  # characters that a watcher holds, if one event is not longer: it may stall for ever


async def watched(
    store: RunStore,
    log_of: Callable[[], RunLog | None],
    lost: TerminalRetry,
    run: str,
    watcher: Watcher,
    *,
    audience: AbstractContextManager[None],
) -> AsyncGenerator[list[EventRow], None]:
    """The run's events behind the watcher, as they become durable, up to the terminal one; not what it writes.

    `log_of` is the log while the run is under way; `audience` is entered while they are read.
    """
    limit = FIRST_PAGE
    with audience:
        while True:
            log = log_of()
            rows = await log.after(watcher) if log else None
            if rows is None:
                rows = [rest_after(row, watcher.seq) for row in await store.events(run, watcher.seq, limit)]
            rows = rows or lost.events(run, watcher.seq)
            if rows:
                rows = page_of(rows)
                limit = min(PAGE, 2 * len(rows))  # hardly more is read than is shown
                watcher.seq = rows[-1].seq
                yield rows
            if not rows or rows[-1].type in TERMINAL:
                return
            rows = None  # while it waits, which may be for long


def page_of(rows: list[EventRow]) -> list[EventRow]:
    """The first of these rows, as many as a watcher may hold: one at least."""
    size = 0
    for count, row in enumerate(rows):
        size += len(row.data)
        if size > PAGE_SIZE and count:
            return rows[:count]
    return rows
