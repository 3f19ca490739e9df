"""Budgets of principals: amounts are reserved before use and settled after it, so that parallel runs cannot overdraw.

The store has the usage per principal, kind and period (UTC). A reservation is stored before its use: after a crash,
reserved budget is not refunded. It counts in the period in which it was reserved, however long the use takes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Any, Protocol

from msgspec import convert

from app.budget.kinds import GRAIN, KINDS, BudgetKind, BudgetSpent, Tally
from app.budget.places import Places
from app.budget.tallies import MemoryTallies, Record, Tallies
from app.config.settings import Settings
from app.core.messages import AskedCall, Message
from app.core.observers import Observers
from app.storage.principals import Budget, Principal
from app.storage.usage import UsageStore
from app.transcript.conversation import Conversation
from app.transcript.prompt_prefixes import PromptPrefixes
from tools.base.rights import Role

UNLIMITED = Budget()
EXCESS_S = 3600.0
Watch = Callable[[str, str, str, float, float], None]
"""Sees each use of a limited budget: principal, budget, period, used, limit."""


class Reservation:
    """`amount` of a budget, held until it is settled; it counts in the period of the `tally`."""

    def __init__(
        self, tallies: Tallies, tally: Tally, limit: int | None, record: Record, watch: Watch | None = None
    ) -> None:
        self.amount = 0.0
        self._watch = watch
        self._tallies = tallies
        self.tally = tally
        self._limit = limit
        self._record = record
        self._settled = False

    @property
    def is_limited(self) -> bool:
        """False if any amount may be used, so that nothing needs to be held."""
        return self._limit is not None

    @property
    def is_recorded(self) -> bool:
        """True if the reservation is in what was recorded, which has to be stored before the use."""
        return self.is_limited and self.amount > 0 and not self._tallies.is_shared

    @property
    def most(self) -> float:
        """The largest amount it could grow to now, as far as this server knows."""
        return self.amount + self.tally.left(self._limit)

    async def take(self, least: float, most: float) -> None:
        """Reserve up to `most` more. Raises BudgetSpent if less than `least` is left, StoreFailed."""
        self.amount += await self._tallies.take(self.tally, self._limit, least, most, self._record)
        if self._tallies.is_shared:  # others may have used the budget meanwhile
            self._report()

    def settle(self, used: float) -> None:
        """Replace the reservation by the actual use, once."""
        if self._settled:
            return
        self._settled = True
        used = math.ceil(max(0.0, used) * GRAIN) / GRAIN
        self._tallies.settle(self.tally, self._limit, self.amount, used, self._record)
        self._report()

    def spent(self, least: float) -> BudgetSpent:
        return self.tally.spent(self._limit, least)

    def _report(self) -> None:
        if self._watch and self._limit is not None:
            tally = self.tally
            self._watch(tally.principal, tally.kind.budget, tally.period, tally.used, self._limit)


class RequestDenied(Exception):
    """A check has denied a model request, its reply or an answer. The message says which one and why."""


class ModelChecks(Protocol):
    """Checks of each model request of a principal, side queries included, and of the reply. All raise RequestDenied."""

    async def before_model(self, model: str, messages: Sequence[Message], conversation: Conversation) -> None: ...

    async def after_model(
        self, model: str, text: str, calls: Sequence[AskedCall], conversation: Conversation
    ) -> None: ...


class PromptExcess:
    """Tokens of a prompt that a model's server reports beyond the estimate, by the model.

    Estimates learn the scale of a tokenizer by themselves (`TokenCounter`), but not what a server adds to each prompt,
    or that it counts in another way. It rises at once and falls by half; after a while it is forgotten, since it may
    refuse the very requests that would correct it. Of a long conversation that was estimated too low shorter prompts
    learn nothing: they would be refused for what they do not have.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._learned: dict[str, dict[int, tuple[int, float]]] = {}  # by the bits of the estimate: the excess, and when

    def of(self, model: str, estimate: int) -> int:
        """Return the excess of a prompt with this estimate: the most that prompts of its size or smaller ones had."""
        known = self._learned.get(model, {})
        now = self._clock()
        size = estimate.bit_length()
        return max((most for bits, (most, at) in known.items() if bits <= size and now - at < EXCESS_S), default=0)

    def learn(self, estimate: int, model: str, reported: int) -> None:
        """`estimate`: of the prompt, without any excess."""
        excess = max(0, reported - estimate)
        now = self._clock()
        size = estimate.bit_length()
        if not excess and model not in self._learned:
            return
        known = self._learned.setdefault(model, {})
        for bits, (before, at) in known.items():
            if bits <= size and now - at < EXCESS_S:
                known[bits] = max(min(excess, before), before // 2), now
        before, at = known.get(size, (0, now))
        known[size] = max(excess, before if now - at < EXCESS_S else 0), now


class Ledger:
    """All budgets of one server. `default` applies where a token sets no limit, `guests` where one of a guest does not.

    `model_checks` (of a principal, by its name) and `observers` are for the model requests that are metered with it.
    """

    def __init__(
        self,
        store: UsageStore,
        default: Budget = UNLIMITED,
        clock: Callable[[], float] = time.time,
        tallies: Tallies | None = None,
        places: Places | None = None,
        *,
        watch: Watch | None = None,
        model_checks: Callable[[str], ModelChecks] | None = None,
        observers: Observers | None = None,
        guests: Budget = UNLIMITED,
    ) -> None:
        self._default = default
        self._guests = with_defaults(guests, default)
        self._tallies: Tallies = tallies or MemoryTallies(store, clock)
        self.places = places or Places()
        self.excess = PromptExcess(clock)
        self.prefixes = PromptPrefixes()
        self.model_checks = model_checks
        self.observers = observers or Observers()
        self._watch = watch

    def limits(self, principal: Principal) -> Budget:
        default = self._guests if principal.role is Role.GUEST else self._default
        if principal.budget == UNLIMITED:  # as a rule; the look-ups below take five times the time
            return default
        if principal.member == principal.name:  # a member, who has no more than its token
            return lowest(principal.budget, default)
        return with_defaults(principal.budget, default)

    async def reserve(
        self, principal: Principal, kind: BudgetKind, record: Record, most: float, least: float | None = None
    ) -> Reservation:
        """Reserve up to `most` of a budget; `record` stores the changes. Raises BudgetSpent, StoreFailed."""
        tally = await self._tallies.known(principal.name, kind)
        held = Reservation(self._tallies, tally, kind.limit(self.limits(principal)), record, self._watch)
        if most:  # a use without cost needs no budget
            await held.take(kind.least if least is None else least, most)
        return held

    async def check(self, principal: Principal, kinds: Iterable[BudgetKind]) -> None:
        """Check that enough is left to begin. Raises BudgetSpent, StoreFailed."""
        limits = self.limits(principal)
        for kind in kinds:
            if (limit := kind.limit(limits)) is not None:
                tally = await self._tallies.current(principal.name, kind)
                if tally.left(limit) < kind.least:
                    raise tally.spent(limit, kind.least)

    def entering(self, principal: Principal, session: str, *, asked: bool = True) -> AbstractAsyncContextManager[None]:
        """Count a run that starts or waits in the queue of its session, and that the block stores.

        Runs that no request started, such as resumed ones, are counted only. Raises BudgetSpent, StoreFailed.
        """
        limit = self.limits(principal).runs if asked else None
        return self.places.entering(principal.name, session, limit)

    async def usage(self, principal: Principal) -> dict[str, dict[str, Any]]:
        """Return used and reserved amounts, limits and reset times by the fields of Budget. Raises StoreFailed."""
        limits = self.limits(principal)
        result: dict[str, dict[str, Any]] = {
            "runs": {"used": len(await self.places.busy(principal.name)), "limit": limits.runs},
            "requests_per_minute": {"limit": limits.requests_per_minute},
        }
        for kind in KINDS:
            tally = await self._tallies.current(principal.name, kind)
            result[kind.budget] = {
                "period": tally.period,
                "used": kind.display(tally.used),
                "reserved": kind.display(tally.reserved),
                "limit": getattr(limits, kind.budget),
                "reset": tally.reset,
            }
        return result


@lru_cache(256)
def with_defaults(budget: Budget, default: Budget) -> Budget:
    """Fill the unset limits of a budget with the default ones."""
    own = {name: getattr(budget, name) for name in Budget.__struct_fields__}
    return Budget(**{name: getattr(default, name) if value is None else value for name, value in own.items()})


@lru_cache(256)
def lowest(budget: Budget, other: Budget) -> Budget:
    """Return the lower limit of each kind."""
    pairs = {name: (getattr(budget, name), getattr(other, name)) for name in Budget.__struct_fields__}
    return Budget(**{name: min((one for one in pair if one is not None), default=None) for name, pair in pairs.items()})


def default_budget(settings: Settings) -> Budget:
    """Return the limits of the settings, where 0 means no limit."""
    return Budget(
        settings.max_runs,
        settings.requests_per_minute or None,
        settings.tokens_per_month or None,
        settings.tool_seconds_per_day or None,
        settings.cost_per_month or None,
    )


def guest_budget(settings: Settings) -> Budget:
    """Return the limits of guests by the settings."""
    return convert(dict(settings.guest_budget), Budget)
