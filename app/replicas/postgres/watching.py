"""Events of runs that another replica has, for the watchers at this one.

This replica says to the owner's channel what it watches, at once and every RENEW_S. The owner sends the rows of each
commit, or a hint to read the table where they are too long. Messages may be lost, so the table is read once a second
too: a watcher sees each event once and in order, whatever is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import astuple

from app.replicas.peers import Body, Feed
from app.replicas.postgres.messages import MOST_BYTES, Messages, channel_of, encoded
from app.storage.runs import EventRow

RENEW_S = 5.0
LIFE_S = 3 * RENEW_S  # of a watch that is not renewed
MOST_KEPT = 64  # rows that came by message and are not yet read


class Watching:
    """Both sides: `following` the runs of others, `publish` for the watchers elsewhere."""

    def __init__(self, messages: Messages) -> None:
        self.me = ""
        self.has_run: Callable[[str], bool] = _none
        self._messages = messages
        self._feeds: dict[str, list[Feed]] = {}  # by run, of watchers here
        self._elsewhere: dict[str, dict[str, float]] = {}  # by run: replica -> monotonic time at which it is over
        messages.handlers |= {"watch": self._watched, "rows": self._came}
        messages.on_gap.append(self._wake_all)

    @contextmanager
    def following(self, run: str) -> Iterator[Feed]:
        feed = Feed()
        self._feeds.setdefault(run, []).append(feed)
        self._ask_for([run])
        try:
            yield feed
        finally:
            feeds = self._feeds[run]
            feeds.remove(feed)
            if not feeds:
                del self._feeds[run]

    async def renew_forever(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            self._ask_for(list(self._feeds))
            now = time.monotonic()
            for run, replicas in list(self._elsewhere.items()):
                alive = {replica: until for replica, until in replicas.items() if until > now and self.has_run(run)}
                self._elsewhere[run] = alive
                if not alive:
                    del self._elsewhere[run]

    def publish(self, rows: Sequence[EventRow]) -> None:
        """Send rows of one run, which are durable, to the replicas that watch it."""
        watchers = self._elsewhere.get(rows[0].run) if self._elsewhere else None
        if not watchers:
            return
        payload = _payload(rows)
        for replica in watchers:
            self._messages.send(channel_of(replica), payload)

    def _ask_for(self, runs: Sequence[str]) -> None:
        """To all: the owner may have changed."""
        for at in range(0, len(runs), 128):
            self._messages.send_all("watch", by=self.me, runs=list(runs[at : at + 128]))

    def _watched(self, body: Body) -> None:
        by, now = body["by"], time.monotonic()
        for run in body["runs"]:
            if by != self.me and self.has_run(run):
                self._elsewhere.setdefault(run, {})[by] = now + LIFE_S

    def _came(self, body: Body) -> None:
        rows = [EventRow(body["run"], *row) for row in body["rows"]]
        for feed in self._feeds.get(body["run"], ()):
            feed.rows = [*feed.rows, *rows][-MOST_KEPT:]
            feed.news.set()

    def _wake_all(self) -> None:
        self._ask_for(list(self._feeds))
        for feeds in self._feeds.values():
            for feed in feeds:
                feed.news.set()


def _none(_: str) -> bool:
    return False


def _payload(rows: Sequence[EventRow]) -> str:
    run = rows[0].run
    if sum(len(row.data) for row in rows) < MOST_BYTES:
        payload = encoded("rows", {"run": run, "rows": [astuple(row)[1:] for row in rows]})
        if len(payload) <= MOST_BYTES:
            return payload
    return encoded("rows", {"run": run, "rows": []})
