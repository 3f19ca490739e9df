"""The figures of budgets: in memory, if the database has one server, or in the database, if several share it.

In memory nothing awaits, so that check and reservation are atomic, and the journal writes a reservation with the other
changes of its run. A shared database reserves in one statement, durably; what is given back is written by the journal.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from app.budget.kinds import GRAIN, BudgetKind, Tally
from app.storage.changes import Change
from app.storage.usage import Settled, Shared, SharedUsage, UsageAdded, UsageStore

Record = Callable[[Change], None]


class Tallies(Protocol):
    is_shared: bool
    """True if other servers count here, too. Then a reservation is durable at once."""

    async def known(self, principal: str, kind: BudgetKind) -> Tally:
        """Return the tally of the current period, perhaps with older figures. Raises StoreFailed."""

    async def current(self, principal: str, kind: BudgetKind) -> Tally:
        """Return the tally of the current period with the figures of now. Raises StoreFailed."""

    async def take(self, tally: Tally, limit: int | None, least: float, most: float, record: Record) -> float:
        """Reserve up to `most`; return how much. Raises BudgetSpent if less than `least` is left, StoreFailed."""

    def settle(self, tally: Tally, limit: int | None, amount: float, used: float, record: Record) -> None:
        """Replace a reservation of `amount` by what was used."""


class MemoryTallies:
    is_shared = False

    def __init__(self, store: UsageStore, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._tallies: dict[tuple[str, str], Tally] = {}  # of the current period

    async def known(self, principal: str, kind: BudgetKind) -> Tally:
        """Return the tally of the current period: read from the store once, then cached."""
        key = principal, kind.name
        while True:
            cached = self._tallies.get(key)
            if (tally := of_now(cached, kind, self._clock())) is not None:
                return tally
            period, reset = kind.now(self._clock())
            used = await self._store.usage(principal, kind.name, period)
            if self._tallies.get(key) is cached:  # else a concurrent call has stored a tally, perhaps with reservations
                self._tallies[key] = Tally(principal, kind, period, reset, used)

    async def current(self, principal: str, kind: BudgetKind) -> Tally:
        return await self.known(principal, kind)

    async def take(self, tally: Tally, limit: int | None, least: float, most: float, record: Record) -> float:
        left = tally.left(limit)
        if left < least:
            raise tally.spent(limit, least)
        more = floored(min(most, left))
        tally.reserved += more
        if limit is not None and more:  # without a limit a crash needs no record of it
            record(UsageAdded(tally.principal, tally.kind.name, tally.period, more))
        return more

    def settle(self, tally: Tally, limit: int | None, amount: float, used: float, record: Record) -> None:
        tally.reserved -= amount
        tally.used += used
        if change := used if limit is None else used - amount:
            record(UsageAdded(tally.principal, tally.kind.name, tally.period, change))


class StoredTallies:
    """A tally is the last view of the shared figures, and what this server has settled since.

    `flush` writes what was recorded: before a budget is found to be spent, this server's own uses are settled.
    """

    is_shared = True

    def __init__(self, store: SharedUsage, flush: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._flush = flush
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._unwritten = False  # a settlement is
        self._asking: set[asyncio.Future[Shared]] = set()

    async def known(self, principal: str, kind: BudgetKind) -> Tally:
        key = principal, kind.name
        tally = of_now(self._tallies.get(key), kind, time.time())
        if tally is None:
            self._tallies[key] = tally = Tally(principal, kind, *kind.now(time.time()), 0.0)
        return tally

    async def current(self, principal: str, kind: BudgetKind) -> Tally:
        if self._unwritten:
            await self._write()
        tally = await self.known(principal, kind)
        _see(tally, await self._store.shared_usage(principal, kind.name, tally.period))
        return tally

    async def take(self, tally: Tally, limit: int | None, least: float, most: float, record: Record) -> float:
        if limit is None:
            return floored(most)
        taken = 0.0
        most = floored(most)
        try:
            while True:
                granted = await self._reserved(tally, limit, max(0.0, least - taken), most - taken, record)
                taken += granted or 0.0
                if taken >= most or not self._unwritten:
                    break
                await self._write()
            if granted is None and not taken:
                raise tally.spent(limit, least)
        except BaseException:
            if taken:
                self.settle(tally, limit, taken, 0.0, record)
            raise
        return taken

    def settle(self, tally: Tally, limit: int | None, amount: float, used: float, record: Record) -> None:
        budget = tally.principal, tally.kind.name, tally.period
        tally.used += used
        if limit is None:
            if used:
                record(UsageAdded(*budget, used))
        elif amount or used:
            tally.reserved = max(0.0, tally.reserved - amount)
            record(Settled(*budget, used - amount, self._store.replica, amount))
            self._unwritten = True

    async def _reserved(self, tally: Tally, limit: int, least: float, most: float, record: Record) -> float | None:
        """Reserve in the database; None if less than `least` is left. A caller who is cancelled keeps nothing."""
        budget = tally.principal, tally.kind.name, tally.period
        asking = asyncio.ensure_future(self._store.reserve(*budget, least=least, most=most, limit=limit))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        try:
            seen = await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(partial(self._give_back, tally, limit, record))
            raise
        _see(tally, seen)
        return seen.granted

    def _give_back(self, tally: Tally, limit: int, record: Record, asked: asyncio.Future[Shared]) -> None:
        if not asked.cancelled() and asked.exception() is None and (granted := asked.result().granted):
            self.settle(tally, limit, granted, 0.0, record)

    async def _write(self) -> None:
        self._unwritten = False
        try:
            await self._flush()
        except BaseException:
            self._unwritten = True
            raise


def of_now(tally: Tally | None, kind: BudgetKind, now: float) -> Tally | None:
    """Return the tally if its period is the current one; a clock that is set back reopens no period."""
    if tally and (now < tally.reset or tally.period >= kind.now(now)[0]):
        return tally
    return None


def floored(amount: float) -> float:
    return math.floor(amount * GRAIN) / GRAIN


def _see(tally: Tally, seen: Shared) -> None:
    tally.used, tally.reserved = seen.used, seen.reserved
