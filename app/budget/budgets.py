"""Budgets: what a principal uses is taken before it is used and settled after, so that parallel runs cannot overdraw.

What was used is kept in the store, per principal, kind and period (UTC). What is taken counts there from before it is
used: a server that is killed gives nothing back. It belongs to the period in which it was taken, however long its use.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from app.config.settings import Settings
from app.models.endpoints.prices import DIGITS
from app.storage.changes import Change
from app.storage.principals import Budget, Principal
from app.storage.usage import UsageAdded, UsageStore
from app.transcript.run_request import MAX_LINE

GRAIN = 1024  # amounts are whole parts of one in so many: a sum of such has no rounding error
SOON_S = 5.0  # when to try again what somebody's own runs stand in the way of
UNLIMITED = Budget()
Record = Callable[[Change], None]


class BudgetSpent(Exception):
    """Not enough is left of a budget. `budget` is its name, `reset` the Unix time at which to try again."""

    def __init__(self, budget: str, message: str, reset: float) -> None:
        super().__init__(message)
        self.budget = budget
        self.reset = reset


@dataclass(frozen=True, slots=True)
class BudgetKind:
    """Something that is used up. `budget` is the field of Budget that limits it; with less than `least` nothing begins.

    `period` is how strftime writes the period that the limit is for, `days` more than the longest of them has.
    Amounts are kept in `parts` of what people call one.
    """

    name: str
    budget: str
    words: str
    least: float
    period: str
    days: int
    parts: int = 1

    def limit(self, budget: Budget) -> int | None:
        limit: float | None = getattr(budget, self.budget)
        return None if limit is None else round(limit * self.parts)

    def display(self, amount: float) -> float:
        """As people count it."""
        return round(amount / self.parts, 3 if self.parts == 1 else DIGITS)

    def written(self, amount: float) -> str:
        """The same in a sentence."""
        return f"{amount:,.0f}" if self.parts == 1 else f"{amount / self.parts:,.6f}".rstrip("0").rstrip(".")

    def now(self, at: float) -> tuple[str, float]:
        """The period of this moment, and the Unix time at which the next one begins."""
        moment = datetime.fromtimestamp(at, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        if self.days > 1:
            moment = moment.replace(day=1)
        after = moment + timedelta(days=self.days)
        return moment.strftime(self.period), (after.replace(day=1) if self.days > 1 else after).timestamp()


TOKENS = BudgetKind("tokens", "tokens_per_month", "tokens a month", 64, "%Y-%m", 32)
TOOL_SECONDS = BudgetKind("tool_seconds", "tool_seconds_per_day", "seconds of tools a day", 0.05, "%Y-%m-%d", 1)
COST = BudgetKind("cost", "cost_per_month", "units of money a month", 1, "%Y-%m", 32, parts=10**DIGITS)
KINDS = (TOKENS, COST, TOOL_SECONDS)


@dataclass(slots=True)
class Tally:
    """What one principal has used in one period; `reserved` is what uses under way may come to."""

    principal: str
    kind: BudgetKind
    period: str
    reset: float
    used: float
    reserved: float = 0.0

    def left(self, limit: int | None) -> float:
        return math.inf if limit is None else limit - self.used - self.reserved

    def spent(self, limit: int | None, least: float) -> BudgetSpent:
        """Why `least` cannot be had. What the principal's own uses hold may be free again soon."""
        held = self.reserved > 0 and limit is not None and limit - self.used >= least
        written = self.kind.written
        said = f"{self.principal} may use {written(limit or 0)} {self.kind.words} and has used {written(self.used)}."
        if self.reserved > 0:
            said += f" What is under way may take {written(self.reserved)} more."
        if self.left(limit) > 0:
            said += f" This needs at least {written(math.ceil(least))}."
        begins = f"{datetime.fromtimestamp(self.reset, UTC):%Y-%m-%d %H:%M} UTC"
        said += f" {'Try again when that is done, or' if held else 'The budget begins again'} at {begins}."
        return BudgetSpent(self.kind.budget, said, time.time() + SOON_S if held else self.reset)


class Reservation:
    """`amount` of a budget, taken until it is settled. Nothing here waits: between check and taking nobody comes in."""

    def __init__(self, tally: Tally, limit: int | None, record: Record) -> None:
        self.amount = 0.0
        self._tally = tally
        self._limit = limit
        self._record = record
        self._settled = False

    @property
    def principal(self) -> str:
        return self._tally.principal

    @property
    def period(self) -> str:
        """The one that it counts in."""
        return self._tally.period

    @property
    def stored(self) -> bool:
        """Whether the store is told what was taken: where there is no limit, nobody would ask after a kill."""
        return self._limit is not None and self.amount > 0

    @property
    def most(self) -> float:
        """What it could grow to, if nobody else took of it."""
        return self.amount + self._tally.left(self._limit)

    def take(self, least: float, most: float) -> None:
        """At most `most` more. Raises BudgetSpent if not even `least` is left."""
        left = self._tally.left(self._limit)
        if left < least:
            raise self.spent(least)
        more = math.floor(min(most, left) * GRAIN) / GRAIN
        self.amount += more
        self._tally.reserved += more
        if self.stored:
            self._write(more)

    def settle(self, used: float) -> None:
        """Once: what was used, less than the amount or more."""
        if self._settled:
            return
        self._settled = True
        used = math.ceil(max(0.0, used) * GRAIN) / GRAIN
        self._tally.reserved -= self.amount
        self._tally.used += used
        self._write(used - self.amount if self.stored else used)

    def spent(self, least: float) -> BudgetSpent:
        return self._tally.spent(self._limit, least)

    def _write(self, amount: float) -> None:
        if amount:
            tally = self._tally
            self._record(UsageAdded(tally.principal, tally.kind.name, tally.period, amount))


class Ledger:
    """All budgets of one server. `default` is what principals may use whose token does not say."""

    def __init__(self, store: UsageStore, default: Budget = UNLIMITED, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._default = default
        self._clock = clock
        self._tallies: dict[tuple[str, str], Tally] = {}  # those of the present period
        self._busy: dict[str, Counter[str]] = {}  # principal -> session -> its runs

    def limits(self, principal: Principal) -> Budget:
        return with_defaults(principal.budget, self._default)

    async def reserve(
        self, principal: Principal, kind: BudgetKind, record: Record, most: float, least: float | None = None
    ) -> Reservation:
        """At most `most` of a budget; `record` keeps the changes. Raises BudgetSpent, StoreFailed."""
        tally = await self._tally(principal.name, kind)
        held = Reservation(tally, kind.limit(self.limits(principal)), record)
        if most:  # what costs nothing can be had by whoever has nothing left
            held.take(kind.least if least is None else least, most)
        return held

    async def check(self, principal: Principal, kinds: Iterable[BudgetKind]) -> None:
        """Whether enough is left to begin with. Raises BudgetSpent, StoreFailed."""
        limits = self.limits(principal)
        for kind in kinds:
            if (limit := kind.limit(limits)) is not None:
                tally = await self._tally(principal.name, kind)
                if tally.left(limit) < kind.least:
                    raise tally.spent(limit, kind.least)

    def enter(self, principal: Principal, session: str, *, asked: bool = True) -> None:
        """A run begins, or waits in the line of its session, where one at a time is under way. Raises BudgetSpent.

        As many sessions as the limit says may be busy, and all runs together, those that wait included, may be a line
        more than that. What nobody `asked` for, such as what goes on after a restart, is counted only.
        """
        busy, limit = self._busy.get(principal.name, Counter[str]()), self.limits(principal).runs
        if asked and limit is not None:
            said = ""
            if session not in busy and len(busy) >= limit:
                said = f"has {len(busy)} runs under way and may have {limit}"
            elif busy.total() >= limit + MAX_LINE:
                said = f"has {busy.total()} runs under way or waiting, which is the most"
            if said:
                raise BudgetSpent("runs", f"{principal.name} {said}. Wait for one, or cancel it.", time.time() + SOON_S)
        busy[session] += 1
        self._busy[principal.name] = busy

    def leave(self, principal: str, session: str) -> None:
        """A run that had entered has ended, or was never begun."""
        busy = self._busy[principal]
        busy[session] -= 1
        if not busy[session]:
            del busy[session]
        if not busy:
            del self._busy[principal]

    async def usage(self, principal: Principal) -> dict[str, dict[str, Any]]:
        """By the names of Budget: what was used, what may be, and when it begins again. Raises StoreFailed."""
        limits = self.limits(principal)
        result: dict[str, dict[str, Any]] = {
            "runs": {"used": len(self._busy.get(principal.name, ())), "limit": limits.runs},
            "requests_per_minute": {"limit": limits.requests_per_minute},
        }
        for kind in KINDS:
            tally = await self._tally(principal.name, kind)
            result[kind.budget] = {
                "period": tally.period,
                "used": kind.display(tally.used),
                "reserved": kind.display(tally.reserved),
                "limit": getattr(limits, kind.budget),
                "reset": tally.reset,
            }
        return result

    async def _tally(self, principal: str, kind: BudgetKind) -> Tally:
        """Of the present period: read from the store once, kept in memory from then on. Raises StoreFailed."""
        key = principal, kind.name
        while True:
            known = self._tallies.get(key)
            if known and self._clock() < known.reset:
                return known
            period, reset = kind.now(self._clock())
            if known and known.period >= period:  # a clock that is set back opens no period again
                return known
            used = await self._store.usage(principal, kind.name, period)
            if self._tallies.get(key) is known:  # else somebody was faster, and may have taken of it since
                self._tallies[key] = Tally(principal, kind, period, reset, used)


@lru_cache(256)
def with_defaults(budget: Budget, default: Budget) -> Budget:
    """What a budget leaves open as it is usual."""
    own = {field.name: getattr(budget, field.name) for field in fields(Budget)}
    return Budget(**{name: getattr(default, name) if value is None else value for name, value in own.items()})


def default_budget(settings: Settings) -> Budget:
    """What the settings give to whoever's token says nothing; there 0 is no limit."""
    return Budget(
        settings.max_runs,
        settings.requests_per_minute or None,
        settings.tokens_per_month or None,
        settings.tool_seconds_per_day or None,
        settings.cost_per_month or None,
    )
