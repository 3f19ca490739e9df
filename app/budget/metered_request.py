"""Meter one model request: reserve budget before it, count the actual usage however it ends.

The tokens of a prompt are estimated before its request; what its server reports is settled, also if it is more. So one
request may exceed a budget, by as much as its server reports beyond the estimate; the answer is cut off as soon as a
report in the stream says so, the next request is refused, and the model's next estimates are higher (`PromptExcess`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from time import monotonic
from types import TracebackType
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from app.budget.budgets import Reservation
from app.budget.kinds import COST, BudgetSpent, Tally
from app.core.events import Usage
from app.core.observers import ObservedRequest, Observers, RequestSpan
from app.core.provider import ModelRequest, Provider, ProviderFailed, TakeText, TokenUsage, name_of
from app.models.endpoints.faults import UNREAD
from app.models.endpoints.prices import MILLION
from app.models.tokens.estimates import CHARACTERS_PER_TOKEN
from app.storage.usage import ModelUsage
from app.transcript.conversation import Conversation
from app.transcript.prompt_prefixes import PromptPrefix, PromptPrefixes, SentPrompt
from app.transcript.reply import Reply
from app.transcript.run_totals import RunTotals
from app.transcript.timings import RequestTimes

WORDIEST = 8  # maximum characters per token in a long text
ALLOWANCE = 4096  # tokens of an answer that are reserved at a time
LEAST_ANSWER = 64
NOTHING = TokenUsage(0, 0)
LearnPrompt = Callable[[str, int], None]
"""Takes the name of the model that has answered, and how many tokens of the prompt it has counted."""


def tokens(used: TokenUsage) -> float:
    return used.prompt_tokens + used.completion_tokens


def money_of(provider: Provider) -> Callable[[TokenUsage], float]:
    """Return a function for the cost of tokens, by the price of the model that answers, in parts of the budget."""
    return lambda used: round((provider.cost(used) or 0) * COST.parts)


def at_most(weigh: Callable[[TokenUsage], float], prompt: int, answer: int) -> float:
    """Return the maximum cost: some servers charge more for tokens that they write to their cache."""
    return max(weigh(TokenUsage(prompt, answer)), weigh(TokenUsage(prompt, answer, cache_written=prompt)))


class Meter(Struct, frozen=True):
    """A request's reservation in one budget. `weigh` converts tokens to amounts of it."""

    held: Reservation
    weigh: Callable[[TokenUsage], float]

    def of_prompt(self, estimate: int, reported: TokenUsage) -> float:
        """Return the amount for a prompt: the estimate's, or what the server has reported, if that is more."""
        return max(at_most(self.weigh, estimate, 0), self.weigh(replace(reported, completion_tokens=0)))

    def answer(self, prompt: float) -> float:
        """Return how many tokens of an answer the reservation covers, beside the amount of the prompt."""
        if not self.held.is_limited:
            return math.inf
        left = self.held.amount - prompt
        each = self.weigh(TokenUsage(0, MILLION)) / MILLION
        return left / each if each else math.inf if left >= 0 else -1

    async def grow(self, prompt: float) -> None:
        """Reserve more. Raises BudgetSpent, StoreFailed."""
        missing = prompt - self.held.amount  # after a report, or after a fallback to a more expensive model
        least, most = (max(1, self.weigh(TokenUsage(0, answer))) for answer in (1, ALLOWANCE))
        await self.held.take(max(missing, least), max(missing, 0) + most)


class MeteredRequest:
    """The budget of one model request, a context manager (see `receiving`).

    It reserves more as the answer grows and settles at the end.
    `usage` is set at the end; if an error ends the context, its event is emitted here, as the caller no longer can.
    """

    usage: Usage

    def __init__(
        self,
        provider: Provider,
        request: ModelRequest,
        *,
        meters: Sequence[Meter],
        prompt: int,
        conversation: Conversation,
        observers: Observers,
        learn: LearnPrompt,
        prefixes: PromptPrefixes,
    ) -> None:
        self._observers = observers
        self._prefixes = prefixes
        self._sent: SentPrompt | None = None
        self._learn_prompt = learn
        self._provider = provider
        self._model = provider.model
        self._meters = meters
        self._prompt = prompt
        self._conversation = conversation
        self._limited = [meter for meter in meters if meter.held.is_limited]
        self._reported = NOTHING  # in the stream
        self._reported_at = 0  # characters of the answer
        left = self._tokens()
        self._bounded = left < ALLOWANCE
        self._most = max(1, int(min(left, request.max_tokens or left))) if self._bounded else request.max_tokens
        self._request = request
        self._room = self._characters()
        self._unread = False
        self._times = RequestTimes(0.0, 0.0)
        self._in_round = False
        self._error: str | None = None
        self._broken: BaseException | None = None  # what ended the answer, where that ends nothing else
        self._span: RequestSpan | None = None

    def request(self, *, left_s: float | None = None, take_text: TakeText | None = None) -> ModelRequest:
        """Return the request within the limits that the budget allows."""
        trace = self._span.traceparent if self._span else ""
        limits = {"max_tokens": self._most, "afford": self.afford, "left_s": left_s}
        note = None if self._request.verbatim else self._note_prompt  # each relayed request is a session of its own
        return replace(self._request, **limits, take_text=take_text, traceparent=trace, note_prompt=note)

    def receiving(self, reply: Reply, totals: RunTotals, prepared: RequestTimes | None = None) -> Self:
        """Set the reply that the answer goes to and the totals of the run.

        `prepared`: the preparation of a round, whose times are reported.
        """
        self._reply = reply
        self._account = totals
        sent = monotonic()
        self._times = replace(prepared, sent=sent) if prepared else RequestTimes(sent, sent)
        self._in_round = prepared is not None
        if recorder := self._conversation.recorder:
            reply.tape = recorder.begin_request(self._request, self._provider, in_round=self._in_round)
        return self

    def __enter__(self) -> Self:
        if tracer := self._observers.tracer:
            conversation = self._conversation
            self._span = tracer.begin_request(
                conversation.run, conversation.session, self._provider, in_round=self._in_round
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, ProviderFailed):
            self.failed(error)
        elif isinstance(error, BudgetSpent):
            self._unread = True  # ignored if the model has answered already
        self._unread = self._unread or not self._provider.reached
        if self._reply.tape is not None:
            self._reply.tape.close(error or self._broken)
        used, measured = self._used()
        self._learn()
        for meter in self._meters:
            meter.held.settle(meter.weigh(used))
        times = replace(self._times, first=self._reply.first_at, ended=monotonic())
        timing = times.timing(used.completion_tokens) if self._in_round else None
        cost, prompt = self._provider.cost(used), self._prefix()
        self.usage = self._account.add(used, measured=measured, cost=cost, timing=timing, prompt=prompt)
        if used != NOTHING:
            model, cost, tally = name_of(self._provider), self.usage.cost, self._meters[0].held.tally
            self._conversation.record(model_usage(self._conversation, tally, model, used, cost=cost, measured=measured))
            if error:
                self._conversation.log_event(self.usage)
        self._observe(times, error)

    def _note_prompt(self, model: str, parts: Sequence[str]) -> None:
        self._sent = SentPrompt(model, parts, self._request.stage)

    def _prefix(self) -> PromptPrefix | None:
        if self._sent is None:
            return None
        return self._prefixes.take(self._conversation.session, self._sent, in_round=self._in_round)

    def has_room(self, characters: int) -> bool:
        """Return True if so many more characters of the answer need no more budget."""
        return self._reply.characters + characters <= self._room

    @property
    def is_outgrown(self) -> bool:
        """True if the answer needs more budget than is reserved: then call `afford`."""
        reply = self._reply
        if (reply.used or NOTHING) is not self._reported:  # as a rule it comes at the end
            self._reported, self._reported_at = reply.used or NOTHING, reply.characters
            self._room = self._characters()
        return reply.characters > max(self._room, self._reported_at)

    async def afford(self) -> None:
        """Reserve the missing amount, at the price of the model that answers now. Raises BudgetSpent, StoreFailed."""
        self._room = self._characters()
        while self._reply.characters > self._room:
            for meter in self._limited:
                if self._covered(self._answer(meter)) < self._reply.characters:
                    await meter.grow(meter.of_prompt(self._prompt, self._reported))
            self._room = self._characters()

    @property
    def _each(self) -> int:
        """Maximum characters per token. A server that applies `max_tokens` counts exactly."""
        return WORDIEST if self._bounded else CHARACTERS_PER_TOKEN

    def _characters(self) -> float:
        return self._covered(self._tokens())

    def _covered(self, answer: float) -> float:
        """Return the characters that so many tokens of an answer pay for, fewer if its server has counted more."""
        return self._each * min(answer, answer - self._reported.completion_tokens + self._reported_at / self._each)

    def _tokens(self) -> float:
        """Return how many tokens of an answer all reservations cover."""
        return min(map(self._answer, self._limited), default=math.inf)

    def _answer(self, meter: Meter) -> float:
        return meter.answer(meter.of_prompt(self._prompt, self._reported))

    def failed(self, failure: ProviderFailed) -> None:
        self._unread, self._error = failure.code in UNREAD, failure.code
        self.broken_by(failure)

    def broken_by(self, error: BaseException) -> None:
        """Note what has ended the answer."""
        self._broken = error

    def _estimate(self) -> TokenUsage:
        """Estimate the usage if the server did not report it; never more than was reserved."""
        answered = self._reply.characters
        if self._unread and not answered:
            return NOTHING
        taken = max(0.0, self._tokens())
        return TokenUsage(self._prompt, int(min(math.ceil(answered / CHARACTERS_PER_TOKEN), taken)))

    def _used(self) -> tuple[TokenUsage, bool]:
        """Return the usage, and True if the server has reported all of it.

        The report of an interrupted stream may be outdated, and a prompt has at least one token.
        """
        reported, guess = self._reply.used, self._estimate()
        if reported is None:
            return guess, guess == NOTHING  # certain: no model has read the prompt
        answer = reported.completion_tokens
        if not answer or self._reply.stopped is None:
            answer = max(answer, guess.completion_tokens)
        if reported.prompt_tokens and answer == reported.completion_tokens:
            return reported, True
        prompt = reported.prompt_tokens or guess.prompt_tokens
        return replace(reported, prompt_tokens=prompt, completion_tokens=answer), False

    def _learn(self) -> None:
        """Learn how many tokens the prompt had, if it was text: pictures have estimates of their own."""
        reported = self._reply.used
        if reported and reported.prompt_tokens and not self._request.has_attachments:
            self._learn_prompt(name_of(self._provider), reported.prompt_tokens)

    def _observe(self, times: RequestTimes, error: BaseException | None) -> None:
        provider, usage = self._provider, self.usage
        self._observers.observe_request(
            ObservedRequest(
                run=self._conversation.run,
                session=self._conversation.session,
                model=self._model,
                answered_by=name_of(provider),
                sent=times.sent,
                first=times.first,
                ended=times.ended,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                cached_tokens=usage.cached_tokens,
                measured=usage.measured,
                cost=usage.cost,
                error=self._error or code_of(error),
                in_round=self._in_round,
                span=self._span,
                provider=provider,
                request=self._request,
                answer=self._reply,
            )
        )

    def spent(self, stopped: str | None) -> BudgetSpent | None:
        """Return the error if the model stopped at the `max_tokens` that the budget had left."""
        if not self._bounded or stopped != "length":
            return None
        least = min(self._limited, key=self._answer)
        return least.held.spent(at_most(least.weigh, self._prompt, LEAST_ANSWER))


def model_usage(
    conversation: Conversation, tally: Tally, model: str, used: TokenUsage, *, cost: float | None, measured: bool
) -> ModelUsage:
    """Return the row for the tokens of one request, in the period of this tally."""
    parts = None if cost is None else round(cost * COST.parts)
    return ModelUsage(
        principal=tally.principal,
        month=tally.period,
        model=model,
        run=conversation.run,
        session=conversation.session,
        requests=1,
        prompt_tokens=used.prompt_tokens,
        completion_tokens=used.completion_tokens,
        cached_tokens=used.cached or 0,
        estimated_tokens=0 if measured else round(tokens(used)),
        cost=parts,
        estimated_cost=0 if measured and parts is not None else parts,
    )


def code_of(error: BaseException | None) -> str | None:
    """Return the code of an error that has ended a request; None if none has."""
    match error:
        case None:
            return None
        case ProviderFailed():
            return error.code
        case BudgetSpent():
            return "budget"
        case asyncio.CancelledError() | GeneratorExit():
            return "cancelled"
    return "internal"
