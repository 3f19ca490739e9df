"""The recorded model: it answers as it did then, request by request, and reaches no server."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import cached_property
from typing import Any

from app.budget.kinds import BudgetSpent
from app.core.events import Usage
from app.core.messages import Message, load
from app.core.provider import (
    Ability,
    BaseProvider,
    CallForm,
    CallId,
    FallbackUsed,
    Finished,
    ModelRequest,
    Piece,
    ProviderFailed,
    ProviderNotice,
    TextChunk,
    TokenUsage,
)
from app.models.tokens.counter import TokenCounter
from app.runs.recording import parts
from app.runs.recording.recorder import digest_of
from app.runs.recording.stand_ins import MadeUp, applied, borders_of
from parsing import BadCall, Call, CallDelta, CallOpened, Thought
from parsing.templates.derive import TemplateGrammar, Underivable, derive
from tools.tool import Tool

FEW = 64  # pieces of a text that are replayed with their own borders; of longer ones most are joined
JOINED = 2048  # characters
NO_ANSWER = "script_ended"
AT_AN_END = "The run makes another request than was recorded: its model has no answer to it."
Stop = Callable[[str], None]
"""Stop the run as it was stopped then, for this reason."""


class ReplayedModel(BaseProvider):
    """A Provider for one replay. `rounds` and `sides` are its requests in their order.

    `stop` is called where the run was stopped within an answer. With `exact` all borders of pieces are kept.
    """

    def __init__(
        self,
        first: parts.ModelPart,
        requests: Sequence[parts.RequestPart],
        shown: MadeUp,
        *,
        stop: Stop,
        exact: bool = False,
    ) -> None:
        self._known = first
        self._rounds = deque(one for one in requests if not one.side)
        self._streamed: parts.RequestPart | None = None  # the last request of a round
        self._sides = deque(one for one in requests if one.side)
        # A question of its own begins with its rule, one behind the conversation with a message of that.
        begins = (one.held.messages[0][0] for one in requests if one.side and one.held.messages)
        self.asked_behind = any(role != "system" for role in begins)
        self._shown = shown
        self._stop = stop
        self.costs: Mapping[tuple[int, int], float] = {}  # of requests, by their tokens
        self._exact = exact
        self._openings = {
            (one.form, one.taught): tuple(load(shown.shown(json.dumps(message))) for message in one.opening)
            for one in requests
            if one.opening
        }
        self._counter = ReplayedCounter(self)
        self.on_request: Callable[[bool], None] = lambda _: None  # called for side queries, too
        self.ending: Callable[[], None] | None = None  # of a run that makes further requests
        self.clock_s = 0.0
        self.is_whole = True  # else the run made further requests

    @property
    def model(self) -> str:  # type: ignore[override]
        return self._known.name

    @property
    def answers(self) -> str:
        return self._known.answers

    @property
    def native_tools(self) -> bool:
        return self._known.native_tools

    @property
    def call_form(self) -> CallForm:
        part = self._streamed or self.upcoming
        return CallForm(part.form if part else self._known.call_form)

    @property
    def calls_natively(self) -> bool:
        return self._known.calls_natively

    @property
    def leaves_calls(self) -> bool:
        return self._known.leaves_calls

    def prompt_suffix(self) -> str:
        return self._known.suffix

    @cached_property
    def _grammar(self) -> TemplateGrammar | None:
        with suppress(Underivable):  # by this version
            return derive(self._known.probes) if self._known.probes else None
        return None

    def grammar(self) -> TemplateGrammar | None:
        return self._grammar

    def abilities(self) -> Sequence[Ability]:
        return [Ability(name, value, source) for name, value, source in self._known.abilities]  # type: ignore[arg-type]

    def cost(self, used: TokenUsage) -> float | None:
        return self.costs.get((used.prompt_tokens, used.completion_tokens))

    def apart(self) -> ReplayedSide:  # type: ignore[override]
        return ReplayedSide(self)

    @property
    def upcoming(self) -> parts.RequestPart | None:
        return self._rounds[0] if self._rounds else None

    def opening(self, *, taught: bool) -> Sequence[Message]:
        """Return the beginning of the next request, as it was then."""
        part = self.upcoming
        if part is None and not self.is_whole:
            self._stop("")
        form = part.form if part else self._known.call_form
        found = self._openings.get((form, taught)) or self._openings.get((form, not taught))
        return found or next(iter(self._openings.values()), ())

    @property
    def counter(self) -> ReplayedCounter:
        """The counter as it was at the next request of a round; so is the clock."""
        if part := self.upcoming:
            self.clock_s = part.at
            if part.counting:
                self._counter.take(part.counting)
        return self._counter

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """The next recorded answer. Raises ProviderFailed where it failed then, and where there is none."""
        part = self._streamed = await self._next(self._rounds, side=False)
        self._known = part.model or self._known
        async with aclosing(self._pieces(part)) as pieces:
            async for piece in pieces:
                if isinstance(piece, TextChunk | Thought) and request.take_text and request.take_text(piece):
                    continue
                yield piece

    async def side_stream(self) -> AsyncGenerator[Piece, None]:
        """The same for the next side query."""
        async with aclosing(self._pieces(await self._next(self._sides, side=True))) as pieces:
            async for piece in pieces:
                yield piece

    def skip_side(self) -> None:
        """Take a side query as made: it was made by what is not run now."""
        if self._sides:
            self._sides.popleft()

    async def _next(self, left: deque[parts.RequestPart], *, side: bool) -> parts.RequestPart:
        if not left and self.ending:
            self.ending()
            await asyncio.Event().wait()
        self.on_request(side)
        if not left:
            raise ProviderFailed(NO_ANSWER, AT_AN_END, retryable=False)
        return left.popleft()

    async def _pieces(self, part: parts.RequestPart) -> AsyncGenerator[Piece, None]:
        for item in part.items:
            if isinstance(item, parts.Failed):
                await self._fail(item)
            for piece in self._of(item):
                yield piece

    async def _fail(self, item: parts.Failed) -> None:
        """Raise what ended the request then, or wait to be stopped."""
        message = self._shown.shown(item.message)
        if item.code == "budget":
            raise BudgetSpent("recorded", message, 0.0)
        if item.code == parts.LATE:
            raise TimeoutError
        if item.code == "cancelled":
            self._stop("cancelled")
            await asyncio.Event().wait()
        failure = ProviderFailed(item.code, message, retryable=item.retryable, window=item.window, status=item.status)
        failure.successor = self._switch(item.successor) if item.successor else None
        raise failure

    def _switch(self, item: parts.StoodIn) -> FallbackUsed:
        return FallbackUsed(item.wanted, item.answered_by, self._shown.shown(item.reason))

    def _of(self, item: parts.Item) -> Iterator[Piece]:
        match item:
            case parts.CallText():
                yield from (CallDelta(item.index, text) for text in self._split(item))
            case parts.Reasoning():
                yield from map(Thought, self._split(item))
            case parts.Words():
                yield from map(TextChunk, self._split(item))
            case parts.Opened():
                yield CallOpened(item.index, self._shown.shown(item.name))
            case parts.Made():
                made = self._shown.shown_in(item.arguments)
                yield Call(item.index, self._shown.shown(item.name), made, item.dialect, tuple(item.repairs))
            case parts.Unreadable():
                yield BadCall(item.index, self._shown.shown(item.raw), self._shown.shown(item.reason))
            case parts.Identified():
                yield CallId(item.index, item.id, item.origin)
            case parts.Used():
                yield TokenUsage(item.prompt, item.completion, item.cached, item.cache_written)
            case parts.Noted():
                yield ProviderNotice(item.code, self._shown.shown(item.message))
            case parts.StoodIn():
                yield self._switch(item)
            case parts.Ended():
                yield Finished(item.reason)

    async def close(self) -> None:
        """Nothing is open."""

    def _split(self, words: parts.Words) -> Iterator[str]:
        """Return the text in its pieces, the later ones of a long text joined: a parser takes them in any slices."""
        changes = self._shown.changes(words.text)
        text, sizes = applied(words.text, changes), borders_of(words.sizes, changes)
        at = 0
        for size in sizes if self._exact else _joined(sizes):
            if size:
                yield text[at : at + size]
                at += size
        if at < len(text):
            yield text[at:]


def _joined(sizes: Sequence[int]) -> Iterable[int]:
    yield from sizes[:FEW]
    size = 0
    for one in sizes[FEW:]:
        size += one
        if size >= JOINED:
            yield size
            size = 0
    yield size


class ReplayedSide(BaseProvider):
    """The same model for side queries."""

    call_form = CallForm.NATIVE

    def __init__(self, of: ReplayedModel) -> None:
        self._of = of
        self.model = of.model

    @property
    def answers(self) -> str:
        return self._of.answers

    def prompt_suffix(self) -> str:
        return self._of.prompt_suffix()

    def grammar(self) -> TemplateGrammar | None:
        return self._of.grammar()

    def cost(self, used: TokenUsage) -> float | None:
        return self._of.cost(used)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        return self._of.side_stream()

    async def close(self) -> None:
        """Nothing is open."""


class ReplayedCounter(TokenCounter):
    """Counts as the counter of the run did: exact counts are those that its model's server gave."""

    def __init__(self, model: ReplayedModel) -> None:
        super().__init__(model)
        self._recorded: dict[str, float] = {}
        self._described_then = 0

    def take(self, state: parts.Counting) -> None:
        self.restore(state.window, state.whole, state.texts)
        self._recorded |= state.counts
        self._described_then = state.described

    def unscaled(self, message: Message) -> float:
        if self._recorded and (known := self._recorded.get(digest_of(message)[2])) is not None:
            return known
        return super().unscaled(message)

    def described(self, tools: Sequence[Tool]) -> int:
        return self._described_then if tools else 0


def costs_in(events: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int], float]:
    """Return the costs of requests by their tokens, as a log has them."""
    priced = (event for event in events if event["type"] == Usage.type and event.get("cost") is not None)
    return {(event["prompt_tokens"], event["completion_tokens"]): event["cost"] for event in priced}
