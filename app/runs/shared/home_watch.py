"""Runs that wait for a node without a server: their log says so, and they end after their time limit."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from app.core.events import Notice, encode
from app.log.event_writer import EventWriter
from app.replicas.nodes import HOME_GONE
from app.replicas.peers import Replicas
from app.storage.changes import StoreFailed
from app.storage.runs import EventRow, RunRow, RunStore

HOME_AWAY = "home_away"  # the code of a notice
WAITS = "No server runs on node {node}, which has the files of this run. It goes on when there is one."
LOOK_S = 2.0  # a server that is started again in less is not missed

logger = logging.getLogger(__name__)


class HomeWatch:
    """For one server of all. `limit_of` returns the time limit of a run, in seconds."""

    def __init__(
        self, store: RunStore, journal: EventWriter, replicas: Replicas, limit_of: Callable[[RunRow], float]
    ) -> None:
        self._store = store
        self._journal = journal
        self._replicas = replicas
        self._limit_of = limit_of
        self._seen: set[str] = set()

    async def watch_forever(self) -> None:
        while True:
            try:
                await self.look()
            except StoreFailed as failure:
                logger.warning("runs that wait for their node are not known: %s", failure)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Raises StoreFailed."""
        waiting = await self._replicas.nodes.waiting()
        before, self._seen = self._seen, {one.id for one in waiting}
        for one in waiting:
            row = await self._store.run(one.id) if one.id in before else None
            if row is None:
                continue
            if time.time() > one.since + self._limit_of(row):
                await self._replicas.nodes.end(one.id, HOME_GONE)
            else:
                await self._report(one.id, one.node)

    async def _report(self, run: str, node: str) -> None:
        """Add the notice to the run's log, once for each time that it waits."""
        last = await self._store.last_seq(run)
        for event in await self._store.events(run, last - 1, 1):
            if event.type == Notice.type and json.loads(event.data).get("code") == HOME_AWAY:
                return
        if not await self._replicas.nodes.hold(run):
            return
        notice = Notice(HOME_AWAY, WAITS.format(node=node))
        row = EventRow(run, await self._store.last_seq(run) + 1, notice.type, encode(notice))
        try:
            self._journal.put(row)
            await self._journal.flush()
            self._replicas.publish([row])
        finally:
            with suppress(StoreFailed):  # then it waits until the lease of this server is over
                await self._replicas.release([run])


def limit_in(row: RunRow, default_s: float) -> float:
    """The time limit of a run: that of its request, else that of the settings."""
    asked = json.loads(row.policy).get("time_limit_s")
    return asked if isinstance(asked, int | float) else default_s
