"""A session followed from run to run: what was asked for, then the run's events, then the next one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from app.bells import Bells
from app.messages import Message
from app.people import Principal
from app.runs import Runs
from app.store import EventRow, RunRow, Store


@dataclass(frozen=True, slots=True)
class Asked:
    """A run, and the words that it was asked for with; None where nothing is kept of them."""

    row: RunRow
    message: Message | None


Followed = Asked | Sequence[EventRow]


@dataclass(frozen=True, slots=True)
class Position:
    """The last event that was seen of a session: `seq` 0 is before the first event of the run."""

    run: str
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Following:
    runs: Runs
    store: Store
    bells: Bells

    async def asked(self, row: RunRow) -> Asked:
        return Asked(row, await self.store.request_of(row.session, row.id))

    async def follow(
        self, session: str, principal: Principal, after: Position | None
    ) -> AsyncGenerator[Followed, None]:
        """What comes behind `after`, or (None) from the session's run under way on; until the session is deleted.

        Raises StoreFailed.
        """
        with self.bells.hearing(principal.name) as rung:
            row, seq = await self._begin(session, after)
            last = after.run if after else None
            while True:
                rung.clear()
                if row is None:
                    row = await self._next(session, last)
                if row is None:
                    if await self.store.session(session) is None:
                        return
                    await rung.wait()
                    continue
                if not seq:
                    yield await self.asked(row)
                async with aclosing(self.runs.watch(row.id, seq)) as pages:
                    async for rows in pages:
                        yield rows
                last, row, seq = row.id, None, 0

    async def _begin(self, session: str, after: Position | None) -> tuple[RunRow | None, int]:
        if after is not None:
            return await self.store.run(after.run), after.seq
        under_way = self.runs.under_way(session)
        return (await self.store.run(under_way) if under_way else None), 0

    async def _next(self, session: str, last: str | None) -> RunRow | None:
        rows = await self.store.runs(session)
        if last is None:
            under_way = self.runs.under_way(session)
            return next((row for row in rows if row.id == under_way), None)
        seen = next((place for place, row in enumerate(rows) if row.id == last), len(rows))
        return rows[seen + 1] if seen + 1 < len(rows) else None
