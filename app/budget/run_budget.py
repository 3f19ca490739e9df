"""The budget of one run: tokens and cost for each model request, seconds for each tool."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Self

from msgspec import Struct

from app.budget.budgets import Ledger, Reservation
from app.budget.kinds import COST, GRAIN, TOKENS, TOOL_SECONDS, BudgetSpent
from app.budget.metered_request import (
    ALLOWANCE,
    LEAST_ANSWER,
    Meter,
    MeteredRequest,
    at_most,
    model_usage,
    money_of,
    tokens,
)
from app.core.events import Usage
from app.core.provider import ModelRequest, Provider, TokenUsage, name_of
from app.models.tokens.estimates import CHARACTERS_PER_TOKEN
from app.storage.changes import StoreFailed
from app.storage.principals import Principal
from app.transcript.conversation import Conversation
from app.transcript.reply import Reply
from app.transcript.run_totals import RunTotals

SLICE_S = 30.0  # tool time that is reserved at a time, so that parallel tools can share the rest
EARLY_S = 5.0  # the next slice is reserved that long before the last one ends: tools report progress every 2 s


class RunBudget(Struct):
    """Meters the model requests and tools of one run."""

    ledger: Ledger
    principal: Principal
    tool_left_s: Callable[[], float] = lambda: math.inf  # of the run's own time

    async def metered_request(
        self, provider: Provider, request: ModelRequest, prompt: int, conversation: Conversation
    ) -> MeteredRequest:
        """Reserve the cost of the request, of about `prompt` tokens, and of the first part of its answer.

        Raises BudgetSpent, RequestDenied, StoreFailed.
        """
        if checks_of := self.ledger.model_checks:
            await checks_of(self.principal.name).before_model(provider.model, request.messages, conversation)
        learn = partial(self.ledger.excess.learn, prompt)
        prompt += self.ledger.excess.of(name_of(provider), prompt)
        meters = list[Meter]()
        limits = self.ledger.limits(self.principal)
        try:
            for kind, weigh in ((TOKENS, tokens), (COST, money_of(provider))):
                least = most = 0.0
                if kind.limit(limits) is not None:
                    least, most = at_most(weigh, prompt, LEAST_ANSWER), at_most(weigh, prompt, ALLOWANCE)
                held = await self.ledger.reserve(self.principal, kind, conversation.record, most, least)
                meters.append(Meter(held, weigh))
            if any(meter.held.is_recorded for meter in meters):
                await conversation.stored()  # before the use, so that a crash does not lose the reservation
        except BaseException:
            for meter in meters:
                meter.held.settle(0)
            raise
        return MeteredRequest(
            provider,
            request,
            meters=meters,
            prompt=prompt,
            conversation=conversation,
            observers=self.ledger.observers,
            learn=learn,
            prefixes=self.ledger.prefixes,
        )

    async def check_reply(self, provider: Provider, reply: Reply, conversation: Conversation) -> None:
        """Have the whole reply of a request checked. Raises RequestDenied."""
        if checks_of := self.ledger.model_checks:
            checks = checks_of(self.principal.name)
            await checks.after_model(provider.model, reply.shown, reply.calls, conversation)

    async def cut_request(
        self, provider: Provider, prompt: int, characters: int, *, conversation: Conversation, totals: RunTotals
    ) -> Usage:
        """Count a request that was cut off with its server: estimated, since nothing has reported it.

        It had so many tokens of prompt, and so many characters were answered. A budget with a limit has lost what the
        request had reserved, so that nothing more is taken from it. Raises StoreFailed.
        """
        used = TokenUsage(prompt, math.ceil(characters / CHARACTERS_PER_TOKEN))
        for kind, weigh in ((COST, money_of(provider)), (TOKENS, tokens)):
            held = await self.ledger.reserve(self.principal, kind, conversation.record, 0)
            held.settle(0 if held.is_limited else weigh(used))
        usage = totals.add(used, measured=False, cost=provider.cost(used))
        row = model_usage(conversation, held.tally, provider.model, used, cost=usage.cost, measured=False)
        conversation.record(row)
        return usage

    async def tool_time(self, limit_s: float, conversation: Conversation) -> ToolTime:
        """Reserve the first slice of a tool's time; the caller stores it before the tool runs.

        Raises BudgetSpent, StoreFailed.
        """
        limit_s = min(limit_s, self.tool_left_s())
        held = await self.ledger.reserve(self.principal, TOOL_SECONDS, conversation.record, min(limit_s, SLICE_S))
        return ToolTime(held, min(limit_s, held.most))


class ToolTime:
    """The time of one tool, a context manager that settles at the end. `limit_s` is the tool's time limit."""

    def __init__(self, held: Reservation, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._held = held
        self._clock = clock
        self._started = 0.0
        self._waited_s = 0.0

    def __enter__(self) -> Self:
        self._started = self._clock()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._held.settle(self.elapsed_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds that count: those in which a person is waited for do not."""
        return self._clock() - self._started - self._waited_s

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Stop the tool's time while a person is waited for."""
        since = self._clock()
        try:
            yield
        finally:
            self._waited_s += self._clock() - since

    async def go_on(self) -> None:
        """Reserve the next slice if it is due. Raises BudgetSpent when no time is left, StoreFailed."""
        if self._held.amount >= min(self.limit_s, self.elapsed_s + EARLY_S):
            return
        try:
            await self._held.take(1 / GRAIN, min(self.limit_s - self._held.amount, SLICE_S))
        except (BudgetSpent, StoreFailed):
            if self.elapsed_s >= self._held.amount:
                raise
