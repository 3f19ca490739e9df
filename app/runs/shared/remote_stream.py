"""A run's events for a watcher at another server: by message as they become durable, else from the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from app.core.events import TERMINAL
from app.log.event_writer import PAGE
from app.log.log_compaction import rest_after
from app.log.run_stream import page_of
from app.replicas.peers import Replicas
from app.storage.runs import EventRow, RunStore

LOOK_S = 1.0  # between two looks into the store, if no message comes
Here = Callable[[int], AsyncGenerator[list[EventRow], None] | None]
"""The stream of the run behind a cursor, once this server has the run itself."""


async def watched_elsewhere(
    store: RunStore, replicas: Replicas, run: str, after: int, here: Here
) -> AsyncGenerator[list[EventRow], None]:
    """The run's events behind the cursor `after`, up to the terminal one, whoever has the run meanwhile."""
    with replicas.following(run) as feed:
        while True:
            if (stream := here(after)) is not None:  # taken over
                async with aclosing(stream) as pages:
                    async for rows in pages:
                        yield rows
                return
            feed.news.clear()
            row = None
            rows = feed.take(after)
            if not rows:
                row = await store.run(run)  # before its events: one that has ended has them all
                rows = [rest_after(one, after) for one in await store.events(run, after, PAGE)]
            if rows:
                rows = page_of(rows)
                after = rows[-1].seq
                yield rows
                if rows[-1].type in TERMINAL:
                    return
            elif row is None or row.ended is not None:
                return
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await feed.news.wait()
