"""The limited resources, and how much of one a principal has used in a period."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from app.models.endpoints.prices import DIGITS
from app.storage.principals import Budget

GRAIN = 1024  # amounts are multiples of 1/GRAIN: sums of these have no rounding error
SOON_S = 5.0  # Retry-After when the principal's own runs hold the budget


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


TOKENS = BudgetKind("tokens", "tokens_per_month", "tokens a month", least=64, period="%Y-%m", days=32)
TOOL_SECONDS = BudgetKind(
    "tool_seconds", "tool_seconds_per_day", "seconds of tools a day", least=0.05, period="%Y-%m-%d", days=1
)
COST = BudgetKind(
    "cost", "cost_per_month", "units of money a month", least=1, period="%Y-%m", days=32, parts=10**DIGITS
)
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
