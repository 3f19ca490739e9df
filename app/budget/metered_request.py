"""One request to a model: what it may use is taken before, what it has used is counted however it ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from app.budget.budgets import COST, BudgetSpent, Reservation
from app.core.events import Usage
from app.core.provider import ModelRequest, Provider, ProviderFailed, TokenUsage
from app.models.endpoints.faults import UNREAD
from app.models.endpoints.prices import MILLION
from app.models.tokens.counter import CHARACTERS_PER_TOKEN
from app.storage.usage import ModelUsage
from app.transcript.conversation import Conversation
from app.transcript.reply import Reply
from app.transcript.run_totals import RunTotals

WORDIEST = 8  # characters of a token in a long text, at most
ALLOWANCE = 4096  # tokens of an answer that are taken at a time
LEAST_ANSWER = 64
NOTHING = TokenUsage(0, 0)


def tokens(used: TokenUsage) -> float:
    return used.prompt_tokens + used.completion_tokens


def money_of(provider: Provider) -> Callable[[TokenUsage], float]:
    """What tokens cost by the price of whoever answers, in the parts that the budget has."""
    return lambda used: round((provider.cost(used) or 0) * COST.parts)


def at_most(weigh: Callable[[TokenUsage], float], prompt: int, answer: int) -> float:
    """Some servers ask more for what they are to keep in their cache; nobody knows before how much that will be."""
    return max(weigh(TokenUsage(prompt, answer)), weigh(TokenUsage(prompt, answer, cache_written=prompt)))


@dataclass(frozen=True, slots=True)
class Meter:
    """What a request holds of one budget. `weigh` says how much of it so many tokens take."""

    held: Reservation
    weigh: Callable[[TokenUsage], float]

    def answer(self, prompt: int) -> float:
        """For how long an answer that is enough, in tokens."""
        left = self.held.amount - at_most(self.weigh, prompt, 0)
        each = self.weigh(TokenUsage(0, MILLION)) / MILLION
        return left / each if each else math.inf if left >= 0 else -1

    def grow(self, prompt: int) -> None:
        """Take more. Raises BudgetSpent."""
        missing = at_most(self.weigh, prompt, 0) - self.held.amount  # when a dearer model has taken over
        least, most = (max(1, self.weigh(TokenUsage(0, answer))) for answer in (1, ALLOWANCE))
        self.held.take(max(missing, least), max(missing, 0) + most)


class Asking:
    """More is taken as the answer grows, and settled once its end is known: it is a context, entered by `hearing`.

    `request` is what may be asked for. `usage` is there afterwards; if the context is left by an error, it has been
    told: whoever was to do so has gone.
    """

    usage: Usage

    def __init__(
        self,
        provider: Provider,
        request: ModelRequest,
        meters: Sequence[Meter],
        prompt: int,
        conversation: Conversation,
    ) -> None:
        self._provider = provider
        self._meters = meters
        self._prompt = prompt
        self._conversation = conversation
        left = min(meter.answer(prompt) for meter in meters)
        self._bounded = left < ALLOWANCE
        most = max(1, int(min(left, request.max_tokens or left))) if self._bounded else request.max_tokens
        self.request = replace(request, max_tokens=most, afford=self._afford)
        self._room = self._characters()
        self._unread = False

    def hearing(self, reply: Reply, totals: RunTotals) -> Self:
        """The answer will be in `reply`; `totals` is that of the run."""
        self._reply = reply
        self._account = totals
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, ProviderFailed):
            self.failed(error)
        elif isinstance(error, BudgetSpent):
            self._unread = True  # unless it has answered: then it was asked before
        self._unread = self._unread or not self._provider.reached
        used, measured = self._used()
        for meter in self._meters:
            meter.held.settle(meter.weigh(used))
        self.usage = self._account.add(used, measured=measured, cost=self._provider.cost(used))
        if used != NOTHING:
            self._keep(used, measured=measured)
            if error:
                self._conversation.log_event(self.usage)

    def heard(self) -> None:
        """Of the answer, by now. Raises BudgetSpent when no more can be had for it."""
        if self._reply.characters > self._room:
            self._afford()

    def _afford(self) -> None:
        """Take what is missing, at the price of whoever answers by now. Raises BudgetSpent."""
        self._room = self._characters()
        while self._reply.characters > self._room:
            for meter in self._meters:
                if meter.answer(self._prompt) * self._each < self._reply.characters:
                    meter.grow(self._prompt)
            self._room = self._characters()

    @property
    def _each(self) -> int:
        """Characters of a token, at most. A server that takes `max_tokens` counts by itself, and better."""
        return WORDIEST if self._bounded else CHARACTERS_PER_TOKEN

    def _characters(self) -> float:
        return min(meter.answer(self._prompt) for meter in self._meters) * self._each

    def failed(self, failure: ProviderFailed) -> None:
        self._unread = failure.code in UNREAD

    def _estimate(self) -> TokenUsage:
        """For a server that reports no usage, or did not come to it: never more than was taken."""
        answered = self._reply.characters
        if self._unread and not answered:
            return NOTHING
        taken = max(0.0, min(meter.answer(self._prompt) for meter in self._meters))
        return TokenUsage(self._prompt, int(min(math.ceil(answered / CHARACTERS_PER_TOKEN), taken)))

    def _used(self) -> tuple[TokenUsage, bool]:
        """And whether the server has counted all of it.

        What it has said of a stream that broke off may be old, and nobody reads an empty prompt.
        """
        told, guess = self._reply.used, self._estimate()
        if told is None:
            return guess, guess == NOTHING  # nobody has read the prompt: that is sure
        answer = told.completion_tokens
        if not answer or self._reply.stopped is None:
            answer = max(answer, guess.completion_tokens)
        used = replace(told, prompt_tokens=told.prompt_tokens or guess.prompt_tokens, completion_tokens=answer)
        return used, used == told

    def _keep(self, used: TokenUsage, *, measured: bool) -> None:
        held, cost = self._meters[0].held, self._provider.cost(used)
        parts = None if cost is None else round(cost * COST.parts)
        model = self._provider.answers or self._provider.model
        self._conversation.record(
            ModelUsage(
                *(held.principal, held.period, model, self._conversation.run, self._conversation.session),
                *(1, used.prompt_tokens, used.completion_tokens, used.cached or 0),
                0 if measured else round(tokens(used)),
                parts,
                0 if measured and parts is not None else parts,
            )
        )

    def spent(self, stopped: str | None) -> BudgetSpent | None:
        """Whether the model stopped because it was given no more than what was left."""
        if not self._bounded or stopped != "length":
            return None
        least = min(self._meters, key=lambda meter: meter.answer(self._prompt))
        return least.held.spent(at_most(least.weigh, self._prompt, LEAST_ANSWER))
