"""What one run spends of its principal's budgets: tokens with each model request, seconds with each tool."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from app.budgets import GRAIN, TOKENS, TOOL_SECONDS, BudgetSpent, Ledger, Reservation
from app.context.counter import CHARACTERS_PER_TOKEN
from app.conversation import Conversation
from app.people import Principal
from app.provider import ModelRequest, ProviderFailed, Used

WORDIEST = 8  # characters of a token in a long text, at most
ALLOWANCE = 4096  # tokens of an answer that are taken at a time
LEAST_ANSWER = 64
# Codes of ProviderFailed that say that no model has read the prompt, if nothing came before.
UNREAD = frozenset({"model_auth", "model_busy", "model_context", "model_down", "model_not_found", "model_rejected"})
SLICE_S = 30.0  # of a tool's time that are taken at a time; what runs beside it must not wait for an hour's
EARLY_S = 5.0  # a slice is taken that long before the last one ends: tools tell every 2 s that they run


@dataclass(slots=True)
class Spending:
    """What one run may spend."""

    ledger: Ledger
    principal: Principal
    tool_left_s: Callable[[], float] = lambda: math.inf  # of the run's own time

    async def asking(self, request: ModelRequest, conversation: Conversation, prompt: int) -> Asking:
        """Take what the request, of about `prompt` tokens, and a first part of its answer may cost.

        Raises BudgetSpent, StoreFailed.
        """
        held = await self.ledger.reserve(
            self.principal, TOKENS, conversation.record, prompt + ALLOWANCE, prompt + LEAST_ANSWER
        )
        if held.limited:
            await stored(held, conversation)
        return Asking(request, held, prompt)

    async def running(self, limit_s: float, conversation: Conversation) -> Running:
        """Take the first slice of a tool's time, for the caller to store before the tool runs.

        Raises BudgetSpent, StoreFailed.
        """
        limit_s = min(limit_s, self.tool_left_s())
        held = await self.ledger.reserve(self.principal, TOOL_SECONDS, conversation.record, min(limit_s, SLICE_S))
        return Running(held, min(limit_s, held.most))


async def stored(held: Reservation, conversation: Conversation) -> None:
    """Nothing may be used before a server after a kill would find it taken. Raises StoreFailed."""
    try:
        await conversation.stored()
    except BaseException:
        held.settle(0)
        raise


class Asking:
    """One model request's tokens: more is taken as the answer grows, and settled once its end is known."""

    def __init__(self, request: ModelRequest, held: Reservation, prompt: int) -> None:
        self._held = held
        self._prompt = prompt
        self._bounded = held.amount < prompt + ALLOWANCE
        self.request = replace(request, max_tokens=int(held.amount - prompt)) if self._bounded else request
        self._room = self._characters()
        self._unread = False

    def heard(self, answered: int) -> None:
        """The answer has so many characters by now. Raises BudgetSpent when no more can be had for it."""
        while answered > self._room:
            self._held.take(1, ALLOWANCE)
            self._room = self._characters()

    def _characters(self) -> float:
        # A server that takes `max_tokens` counts by itself, and better.
        return (self._held.amount - self._prompt) * (WORDIEST if self._bounded else CHARACTERS_PER_TOKEN)

    def failed(self, failure: ProviderFailed) -> None:
        self._unread = failure.code in UNREAD

    def estimate(self, answered: int) -> Used:
        """For a server that reports no usage, or did not come to it: never more than was taken."""
        if self._unread and not answered:
            return Used(0, 0)
        taken = int(self._held.amount) - self._prompt
        return Used(self._prompt, min(answered // CHARACTERS_PER_TOKEN, taken))

    def settle(self, used: Used) -> None:
        self._held.settle(used.prompt_tokens + used.completion_tokens)

    def spent(self, stopped: str | None) -> BudgetSpent | None:
        """Whether the model stopped because it was given no more than what was left."""
        return self._held.spent(LEAST_ANSWER) if self._bounded and stopped == "length" else None


class Running:
    """One tool's time, as a context: it is settled at the end. `limit_s` is the most that the tool may take."""

    def __init__(self, held: Reservation, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._held = held
        self._clock = clock
        self._started = 0.0

    def __enter__(self) -> Self:
        self._started = self._clock()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._held.settle(self.elapsed_s)

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started

    def go_on(self) -> None:
        """While the tool runs. Raises BudgetSpent when others have taken what was left of its time."""
        if self._held.amount >= min(self.limit_s, self.elapsed_s + EARLY_S):
            return
        try:
            self._held.take(1 / GRAIN, min(self.limit_s - self._held.amount, SLICE_S))
        except BudgetSpent:
            if self.elapsed_s >= self._held.amount:
                raise
