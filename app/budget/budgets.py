"""Budgets of principals: amounts are reserved before use and settled after it, so that parallel runs cannot overdraw.

The store has the usage per principal, kind and period (UTC). A reservation is stored before its use: after a crash,
reserved budget is not refunded. It counts in the period in which it was reserved, however long the use takes.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol

from msgspec import Struct

from app.config.settings import Settings
from app.core.messages import AskedCall, Message
from app.core.observers import Observers
from app.models.endpoints.prices import DIGITS
from app.storage.changes import Change
from app.storage.principals import Budget, Principal
from app.storage.usage import UsageAdded, UsageStore
from app.transcript.conversation import Conversation
from app.transcript.run_request import MAX_LINE

GRAIN = 1024  # amounts are multiples of 1/GRAIN: sums of these have no rounding error
SOON_S = 5.0  # Retry-After when the principal's own runs hold the budget
UNLIMITED = Budget()
Record = Callable[[Change], None]
Watch = Callable[[str, str, str, float, float], None]
"""Sees each use of a limited budget: principal, budget, period, used, limit."""


class BudgetSpent(Exception):
    """The budget is exhausted. `budget` is its name, `reset` the Unix time at which to retry."""

    def __init__(self, budget: str, message: str, reset: float) -> None:
        super().__init__(message)
        self.budget = budget
        self.reset = reset


class BudgetKind(Struct, frozen=True):
    """A limited resource. `budget` is the field of Budget that limits it; a use needs at least `least` to begin.

    `period` is the strftime format of the period, `days` an upper bound of its length. Amounts are stored as multiples
    of 1/`parts` of the displayed unit.
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
        """Convert a stored amount to the displayed unit."""
        return round(amount / self.parts, 3 if self.parts == 1 else DIGITS)

    def written(self, amount: float) -> str:
        """Format a stored amount for a sentence."""
        return f"{amount:,.0f}" if self.parts == 1 else f"{amount / self.parts:,.6f}".rstrip("0").rstrip(".")

    def now(self, at: float) -> tuple[str, float]:
        """Return the current period and the Unix time at which the next one begins."""
        moment = datetime.fromtimestamp(at, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        if self.days > 1:
            moment = moment.replace(day=1)
        after = moment + timedelta(days=self.days)
        return moment.strftime(self.period), (after.replace(day=1) if self.days > 1 else after).timestamp()


TOKENS = BudgetKind("tokens", "tokens_per_month", "tokens a month", 64, "%Y-%m", 32)
TOOL_SECONDS = BudgetKind("tool_seconds", "tool_seconds_per_day", "seconds of tools a day", 0.05, "%Y-%m-%d", 1)
COST = BudgetKind("cost", "cost_per_month", "units of money a month", 1, "%Y-%m", 32, parts=10**DIGITS)
KINDS = (TOKENS, COST, TOOL_SECONDS)


class Tally(Struct):
    """Usage of one principal in one period; `reserved` is held by uses in progress."""

    principal: str
    kind: BudgetKind
    period: str
    reset: float
    used: float
    reserved: float = 0.0

    def left(self, limit: int | None) -> float:
        return math.inf if limit is None else limit - self.used - self.reserved

    def spent(self, limit: int | None, least: float) -> BudgetSpent:
        """Return the error for a use that needs `least`. Amounts that other uses hold may be free again soon."""
        held = self.reserved > 0 and limit is not None and limit - self.used >= least
        written = self.kind.written
        message = f"{self.principal} may use {written(limit or 0)} {self.kind.words} and has used {written(self.used)}."
        if self.reserved > 0:
            message += f" Running work has reserved {written(self.reserved)} more."
        if self.left(limit) > 0:
            message += f" This needs at least {written(math.ceil(least))}."
        resets = f"{datetime.fromtimestamp(self.reset, UTC):%Y-%m-%d %H:%M} UTC"
        message += f" {'Retry when that work has ended, or' if held else 'The budget resets'} at {resets}."
        return BudgetSpent(self.kind.budget, message, time.time() + SOON_S if held else self.reset)


class Reservation:
    """`amount` of a budget, held until it is settled. Methods never await, so that check and reservation are atomic."""

    def __init__(self, tally: Tally, limit: int | None, record: Record, watch: Watch | None = None) -> None:
        self.amount = 0.0
        self._watch = watch
        self._tally = tally
        self._limit = limit
        self._record = record
        self._settled = False

    @property
    def principal(self) -> str:
        return self._tally.principal

    @property
    def period(self) -> str:
        """The period that it counts in."""
        return self._tally.period

    @property
    def is_limited(self) -> bool:
        """False if any amount may be used, so that nothing needs to be held."""
        return self._limit is not None

    @property
    def stored(self) -> bool:
        """True if the store has the reservation. Without a limit a crash needs no record of it."""
        return self.is_limited and self.amount > 0

    @property
    def most(self) -> float:
        """The largest amount it could grow to now."""
        return self.amount + self._tally.left(self._limit)

    def take(self, least: float, most: float) -> None:
        """Reserve up to `most` more. Raises BudgetSpent if less than `least` is left."""
        left = self._tally.left(self._limit)
        if left < least:
            raise self.spent(least)
        more = math.floor(min(most, left) * GRAIN) / GRAIN
        self.amount += more
        self._tally.reserved += more
        if self.stored:
            self._write(more)

    def settle(self, used: float) -> None:
        """Replace the reservation by the actual use, once."""
        if self._settled:
            return
        self._settled = True
        used = math.ceil(max(0.0, used) * GRAIN) / GRAIN
        self._tally.reserved -= self.amount
        self._tally.used += used
        self._write(used - self.amount if self.stored else used)
        if self._watch and self._limit is not None:
            tally = self._tally
            self._watch(tally.principal, tally.kind.budget, tally.period, tally.used, self._limit)

    def spent(self, least: float) -> BudgetSpent:
        return self._tally.spent(self._limit, least)

    def _write(self, amount: float) -> None:
        if amount:
            tally = self._tally
            self._record(UsageAdded(tally.principal, tally.kind.name, tally.period, amount))


class RequestDenied(Exception):
    """A check has denied a model request, its reply or an answer. The message says which one and why."""


class ModelChecks(Protocol):
    """Checks of every model request of every run and side query, and of its reply. They raise RequestDenied."""

    async def before_model(
        self, principal: str, model: str, messages: Sequence[Message], conversation: Conversation
    ) -> None: ...

    async def after_model(
        self, principal: str, model: str, text: str, calls: Sequence[AskedCall], conversation: Conversation
    ) -> None: ...


class Ledger:
    """All budgets of one server. `default` applies where a token sets no limit."""

    def __init__(self, store: UsageStore, default: Budget = UNLIMITED, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._default = default
        self._clock = clock
        self._tallies: dict[tuple[str, str], Tally] = {}  # of the current period
        self.watch: Watch | None = None
        self.model_checks: ModelChecks | None = None
        self.observers = Observers()
        self._busy: dict[str, Counter[str]] = {}  # principal -> session -> its runs

    def limits(self, principal: Principal) -> Budget:
        if principal.budget == UNLIMITED:  # as a rule; the look-up below takes five times the time
            return self._default
        return with_defaults(principal.budget, self._default)

    async def reserve(
        self, principal: Principal, kind: BudgetKind, record: Record, most: float, least: float | None = None
    ) -> Reservation:
        """Reserve up to `most` of a budget; `record` stores the changes. Raises BudgetSpent, StoreFailed."""
        tally = await self._tally(principal.name, kind)
        held = Reservation(tally, kind.limit(self.limits(principal)), record, self.watch)
        if most:  # a use without cost needs no budget
            held.take(kind.least if least is None else least, most)
        return held

    async def check(self, principal: Principal, kinds: Iterable[BudgetKind]) -> None:
        """Check that enough is left to begin. Raises BudgetSpent, StoreFailed."""
        limits = self.limits(principal)
        for kind in kinds:
            if (limit := kind.limit(limits)) is not None:
                tally = await self._tally(principal.name, kind)
                if tally.left(limit) < kind.least:
                    raise tally.spent(limit, kind.least)

    def enter(self, principal: Principal, session: str, *, asked: bool = True) -> None:
        """Count a run that starts or waits in the queue of its session. Raises BudgetSpent.

        The limit applies to busy sessions (each runs one run at a time); all runs together, queued ones included, may
        be a full queue (MAX_LINE) more. Runs that no request started, such as resumed ones, are counted only.
        """
        busy, limit = self._busy.get(principal.name, Counter[str]()), self.limits(principal).runs
        if asked and limit is not None:
            reason = ""
            if session not in busy and len(busy) >= limit:
                reason = f"has {len(busy)} active runs and may have {limit}"
            elif busy.total() >= limit + MAX_LINE:
                reason = f"has {busy.total()} active or queued runs, which is the maximum"
            if reason:
                message = f"{principal.name} {reason}. Wait until one ends, or cancel one."
                raise BudgetSpent("runs", message, time.time() + SOON_S)
        busy[session] += 1
        self._busy[principal.name] = busy

    def leave(self, principal: str, session: str) -> None:
        """Stop counting a run that has ended or did not start."""
        busy = self._busy[principal]
        busy[session] -= 1
        if not busy[session]:
            del busy[session]
        if not busy:
            del self._busy[principal]

    async def usage(self, principal: Principal) -> dict[str, dict[str, Any]]:
        """Return used and reserved amounts, limits and reset times by the fields of Budget. Raises StoreFailed."""
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
        """Return the tally of the current period: read from the store once, then cached. Raises StoreFailed."""
        key = principal, kind.name
        while True:
            known = self._tallies.get(key)
            if known and self._clock() < known.reset:
                return known
            period, reset = kind.now(self._clock())
            if known and known.period >= period:  # a clock that is set back reopens no period
                return known
            used = await self._store.usage(principal, kind.name, period)
            if self._tallies.get(key) is known:  # else a concurrent call has stored a tally, perhaps with reservations
                self._tallies[key] = Tally(principal, kind, period, reset, used)


@lru_cache(256)
def with_defaults(budget: Budget, default: Budget) -> Budget:
    """Fill the unset limits of a budget with the default ones."""
    own = {name: getattr(budget, name) for name in Budget.__struct_fields__}
    return Budget(**{name: getattr(default, name) if value is None else value for name, value in own.items()})


def default_budget(settings: Settings) -> Budget:
    """Return the limits of the settings, where 0 means no limit."""
    return Budget(
        settings.max_runs,
        settings.requests_per_minute or None,
        settings.tokens_per_month or None,
        settings.tool_seconds_per_day or None,
        settings.cost_per_month or None,
    )
