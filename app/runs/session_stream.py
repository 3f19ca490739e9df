"""A session followed from run to run: what was asked for, then the run's events, then the next one."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

from msgspec import Struct
from msgspec.structs import replace

from app.core.events import TERMINAL
from app.core.messages import Message
from app.core.notifier import Notifier
from app.runs.run_manager import RunManager
from app.storage.changes import StoreFailed
from app.storage.runs import EventRow, RunRow
from app.storage.store import Store
from tools.base.tasks import wait_at_most

AGAIN_S = 1.0  # until a store that has failed is asked again, or for a run that has not ended

_log = logging.getLogger(__name__)


class Asked(Struct, frozen=True):
    """A run, and the words that it was asked for with; None where nothing is kept of them."""

    row: RunRow
    message: Message | None


Followed = Asked | Sequence[EventRow]


class Position(Struct):
    """The last event of a session that was sent: `seq` 0 is the run's request. `over`: the run has ended.

    Without a run it is before the first one.
    """

    run: str
    seq: int = 0
    over: bool = False


class Following(Struct, frozen=True):
    runs: RunManager
    store: Store
    notifier: Notifier

    async def asked(self, session: str, row: RunRow) -> Asked:
        """The run as one of this session, also if the session has it of the one that it was forked from."""
        return Asked(replace(row, session=session), await self.store.request_of(session, row.id))

    async def follow(self, session: str, after: Position | None) -> AsyncGenerator[Followed, None]:
        """Yield the events after `after`, or (None) from the session's current run on, each event once.

        Until the session is deleted or the server stops. A store that fails is asked again.
        """
        at = after
        with self.notifier.subscribed(session) as changed:
            while not self.notifier.closed:
                changed.clear()
                try:
                    at = at or await self._beginning(session)
                    async with aclosing(self._news(session, at)) as news:
                        async for one in news:
                            yield one
                    if await self.store.session(session) is None:
                        return
                    # Nothing may tell of a run that another server has, and this one could not follow for a while.
                    await wait_at_most(None if at.over else AGAIN_S, changed)
                except StoreFailed as failure:
                    _log.warning("stream of session %s interrupted, retrying: %s", session, failure)
                    await wait_at_most(AGAIN_S, changed)

    async def waiting(self, session: str) -> AsyncGenerator[Asked, None]:
        """Yield each run that joins the session's queue, once: its first event may be far off."""
        announced = set[str]()
        with self.notifier.subscribed(session) as changed:
            while not self.notifier.closed:
                changed.clear()
                rows = await self.runs.waiting(session)
                for row in rows:
                    if row.id not in announced:
                        with suppress(StoreFailed):  # it is told again when its turn comes
                            yield await self.asked(session, row)
                announced = {row.id for row in rows}
                await changed.wait()

    async def _beginning(self, session: str) -> Position:
        """Before the run under way, or behind all that there are."""
        under_way = await self.runs.under_way(session)
        rows = await self.store.last_runs(session, under_way, 2)
        if rows and rows[0].ended is None and not under_way:
            del rows[0]  # stored, and about to begin
        return Position(rows[0].id if rows else "", over=True)

    async def _news(self, session: str, at: Position) -> AsyncGenerator[Followed, None]:
        """All that there is and what comes of it, run after run, until none is under way. `at` goes with it."""
        while True:
            if at.over:
                row = await self.store.next_run(session, at.run or None)
                if row is None:
                    return
                asked = await self.asked(session, row)
                at.run, at.seq, at.over = row.id, 0, False
                yield asked
            async with aclosing(self.runs.watch(at.run, at.seq)) as pages:
                async for rows in pages:
                    at.seq, at.over = rows[-1].seq, rows[-1].type in TERMINAL
                    yield rows
            if at.over:
                continue
            row = await self.store.run(at.run)
            if row is None or row.ended is None:
                return  # deleted; or stored, and about to begin; or left to the next server
            at.over = await self.store.last_seq(at.run) <= at.seq
