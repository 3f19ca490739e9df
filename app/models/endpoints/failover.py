"""Failover: route the requests of one run to the requested model, or to a fallback if it fails.

Before the first token a request may be retried, sent with another key, or sent to a fallback (retry_policy decides
which). After the first token it is never repeated: the client has already seen a part of the answer. If that breaks
off, the failure names the model that can go on with it, and the next requests of the run, which the agent makes, go to
that one.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from msgspec import Struct, field
from msgspec.structs import replace

from app.core.labels import FORBIDDEN, Clearance, LabelPolicy
from app.core.messages import Message
from app.core.provider import (
    Ability,
    CallForm,
    FallbackUsed,
    ModelRequest,
    Piece,
    ProviderFailed,
    ProviderNotice,
    TokenUsage,
)
from app.models.endpoints.answer_limit import MOST_CHARACTERS, AnswerLimit
from app.models.endpoints.faults import UNREAD, fault_of
from app.models.endpoints.model_handle import ModelHandle
from app.models.endpoints.retry_policy import Attempt, Backoff
from app.models.endpoints.server_state import ServerState
from app.models.endpoints.vision_fallback import ModelsWith, VisionFallback
from app.models.http.failures import ANSWER_TOO_LONG
from app.models.tokens.counter import TokenCounter
from parsing.templates.derive import TemplateGrammar

LEAST_ANSWER = 1024  # tokens that a fallback needs for its answer; less with a small window
BACKOFF = Backoff()
NO_USAGE = TokenUsage(0, 0)  # resets the usage that a failed model has reported


class ModelRoute(Struct):
    """A Provider for one run of `principal`: the first of `handles` that can answer does.

    Retries and fallbacks happen only before the first token of an answer. With a `clearance`, only those that may have
    the labels of its requests: neither a request nor a text to count goes to any other.
    """

    handles: Sequence[ModelHandle]
    principal: str = ""
    backoff: Backoff = BACKOFF
    check_not_paused: Callable[[], None] = lambda: None  # raises Paused; checked again after every wait
    models_with: ModelsWith = lambda ability: ()
    most_characters: int = MOST_CHARACTERS  # of an answer
    clearance: Clearance | None = None
    reached: bool = False  # a model may have read the request
    _described: set[str] = field(default_factory=set)  # files that a notice of this run has named
    _lost: dict[ModelHandle, str] = field(default_factory=dict)  # models whose answers broke off in this run, and why
    _is_apart: bool = False  # for side queries, whose answers are no part of the one that broke off
    _current: ModelHandle | None = None
    _last: ModelHandle | None = None

    @property
    def current(self) -> ModelHandle:
        """The model of the running request, or else of the next one."""
        if self._current or len(self.handles) == 1:
            return self._current or self.handles[0]
        handles = self._candidates or self.handles
        return next(iter(awake(handles)), handles[0])

    @property
    def permitted(self) -> Sequence[ModelHandle]:
        """The models whose endpoints may have the labels of the requests."""
        if self.clearance is None:
            return self.handles
        return [handle for handle in self.handles if not self.clearance.withheld(handle.endpoint, handle.labels)]

    @property
    def _candidates(self) -> Sequence[ModelHandle]:
        """The permitted models, the lost ones last."""
        return sorted(self.permitted, key=lambda handle: handle in self._lost) if self._lost else self.permitted

    def check_labels(self, handle: ModelHandle | None = None) -> None:
        """Raise ProviderFailed if no model, or not this one, may have the labels of the requests."""
        if self.clearance is None:
            return
        if not (handle in self.permitted if handle else self.permitted):
            raise forbidden(self.handles, self.clearance)

    @property
    def last(self) -> ModelHandle:
        """The model of the last request."""
        return self._last or self.current

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Stream the answer of the first model that gives one. Raises ProviderFailed if all fail or it breaks off."""
        attempt = self._start_attempt(request)
        started = False
        counted = False
        self.reached = False
        limit = AnswerLimit(self.most_characters)
        try:
            while True:
                self._current = self._last = attempt.handle
                server = attempt.handle.server
                await request.afford()  # a fallback may be more expensive
                await self._check_room(attempt.handle, request)
                attempt.handle.learn_slots()
                queued = server.queue.join(self.principal)
                try:
                    number = queued.number
                    while number:
                        yield waiting_notice(server, number)
                        number = await queued.wait_for_move(number)
                    self.check_not_paused()
                    before, self.reached = self.reached, True
                    async with aclosing(self._answer(attempt, request, limit)) as pieces:
                        async for piece in pieces:
                            if not started:
                                started = starts_answer(piece)
                                counted = counted or isinstance(piece, TokenUsage)
                                if started and (switched := attempt.succeeded() or self._switched(attempt.handle)):
                                    yield switched
                            ending = limit.cut(piece)
                            for shown in ending or (piece,):
                                yield shown
                            if ending:
                                return
                    return
                except ProviderFailed as failure:
                    if started or failure.code == FORBIDDEN:
                        failure.successor = self._successor(attempt.handle, failure)
                        for last in interrupted_pieces(failure, server, limit):
                            yield last
                        return
                    self.reached = before or failure.code not in UNREAD
                    following = attempt.failed(failure)
                finally:
                    queued.leave()
                for notice in following.notices:
                    yield notice
                if following.failure:
                    raise following.failure
                if counted:
                    yield NO_USAGE
                await self.backoff.sleep(following.wait_s)
        finally:
            self._current = None

    def _answer(self, attempt: Attempt, request: ModelRequest, limit: AnswerLimit) -> AsyncGenerator[Piece, None]:
        """Stream from the provider directly where there are no files: a wrapper would cost time for each token."""
        handle = attempt.handle
        take_text = limit.limited(request.take_text)
        self.check_labels(handle)  # they may have been added while it waited
        request = replace(request, key=attempt.pick_key().value, take_text=take_text)
        if not request.has_attachments:
            return handle.provider.stream(request)
        return VisionFallback(handle.name, handle.provider, self.models_with, self._described).stream(request)

    def _start_attempt(self, request: ModelRequest) -> Attempt:
        until = math.inf if request.left_s is None else self.backoff.now() + request.left_s
        most_s = math.inf if request.inactivity_s is None else request.inactivity_s
        self.check_labels()
        return Attempt(self._candidates, self.backoff, most_s, until)

    def _switched(self, handle: ModelHandle) -> FallbackUsed | None:
        """Return the notice of a model that answers because the wanted one is lost, or may not have the labels."""
        wanted = self.handles[0]
        why = next(reversed(self._lost.values()), FORBIDDEN)
        is_known = handle is wanted or (self._is_apart and self._lost)
        return None if is_known else FallbackUsed(wanted.name, handle.name, why)

    def _successor(self, lost: ModelHandle, failure: ProviderFailed) -> FallbackUsed | None:
        """Pass the model over whose answer broke off, if another one can go on with it: return that one."""
        others = [handle for handle in awake(self._candidates) if handle is not lost]
        if not others or not fault_of(failure).try_fallback:
            return None
        following, wanted = others[0], self.handles[0]
        self._lost.pop(following, None)
        self._lost[lost] = failure.code
        return FallbackUsed((lost if following is wanted else wanted).name, following.name, failure.code)

    async def _check_room(self, handle: ModelHandle, request: ModelRequest) -> None:
        """Raise ProviderFailed if the prompt, fitted to the first candidate, is too long for this fallback."""
        if handle is self._candidates[0]:
            return
        window = await handle.counter.window()
        counted = sum(map(handle.counter.measure, request.whole()))
        counted += handle.counter.described(request.tools) if handle.provider.native_tools else 0
        if counted > window - min(LEAST_ANSWER, window // 16):
            message = f"The prompt has {counted} tokens, and {handle.name} can read {window}."
            raise ProviderFailed("model_context", message, retryable=False, window=window)

    @property
    def model(self) -> str:
        return self.current.provider.model

    @property
    def native_tools(self) -> bool:
        return self.current.provider.native_tools

    @property
    def call_form(self) -> CallForm:
        return self.current.provider.call_form

    @property
    def calls_natively(self) -> bool:
        return self.current.provider.calls_natively

    @property
    def leaves_calls(self) -> bool:
        return self.current.provider.leaves_calls

    @property
    def continues(self) -> bool:
        return self.current.provider.continues

    @property
    def counter(self) -> TokenCounter:
        """The token counter of the model that the next request goes to, whose server may count texts.

        Raises ProviderFailed if no model may have the labels of the conversation.
        """
        self.check_labels()
        return self.current.counter

    @property
    def known_window(self) -> int:
        """The window of the model that the next request goes to, as known by now."""
        return self.current.counter.known_window

    async def window(self) -> int | None:
        return await self.current.provider.window()

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        self.check_labels()
        return await self.current.provider.count_tokens(texts)

    def added(self, message: Message) -> str:
        return self.current.provider.added(message)

    def prompt_suffix(self) -> str:
        return self.current.provider.prompt_suffix()

    def grammar(self) -> TemplateGrammar | None:
        return self.current.provider.grammar()

    def abilities(self) -> Sequence[Ability]:
        return self.current.provider.abilities()

    def ability(self, name: str) -> Ability:
        return self.last.provider.ability(name)  # of the model whose reply is judged by it

    def show(self, name: str, value: bool | str, detail: str) -> None:
        self.last.provider.show(name, value, detail)

    def cost(self, used: TokenUsage) -> float | None:
        return self.last.cost(used)

    @property
    def answers(self) -> str:
        return self.last.name

    def apart(self) -> ModelRoute:
        return replace(self, _current=None, _last=None, _lost=dict(self._lost), reached=False, _is_apart=True)

    async def close(self) -> None:
        """Do nothing: the models are shared by all runs."""


def awake(handles: Sequence[ModelHandle]) -> list[ModelHandle]:
    """Return the models that do not cool down."""
    return [handle for handle in handles if not handle.server.cooldown_of(handle.provider.model)]


def forbidden(handles: Sequence[ModelHandle], clearance: Clearance) -> ProviderFailed:
    """Return the failure of a request whose labels none of these models may have."""
    held = {handle.name: sorted(clearance.withheld(handle.endpoint, handle.labels)) for handle in handles}
    names = sorted({label for labels in held.values() for label in labels})
    tried = "; ".join(f"{name} may not have {', '.join(labels)}" for name, labels in held.items() if labels)
    message = f"Nothing was sent: {tried}. {allowed_endpoints(clearance.policy, names)}"
    return ProviderFailed(FORBIDDEN, message, retryable=False)


def allowed_endpoints(policy: LabelPolicy, labels: Sequence[str]) -> str:
    """Return the sentences that name the endpoints which may have these labels."""
    said = []
    for label in labels:
        rule = policy.rules.get(label)
        where = "any without a list of labels" if rule is None or rule.endpoints is None else ", ".join(rule.endpoints)
        said.append(f"The label {label} may go to: {where or 'no endpoint'}.")
    return f"{' '.join(said)} Choose a model there, or begin a conversation without that data."


def starts_answer(piece: Piece) -> bool:
    """Return whether this piece belongs to the answer itself, after which nothing is retried."""
    return not isinstance(piece, ProviderNotice | TokenUsage)


def interrupted_pieces(failure: ProviderFailed, server: ServerState, limit: AnswerLimit) -> Sequence[Piece]:
    """Return the closing pieces of an answer that is too long. Raises any other failure."""
    if failure.code == ANSWER_TOO_LONG:
        return limit.ending()
    if failure.code != FORBIDDEN:  # for which nothing was sent: no server is at fault
        server.failed(failure)
    raise failure


def waiting_notice(server: ServerState, number: int) -> ProviderNotice:
    limit = server.queue.limit
    at_a_time = "one request" if limit == 1 else f"{limit} requests"
    name = server.name or "The model"
    return ProviderNotice("waiting", f"{name} answers {at_a_time} at a time: this one is number {number} in the queue.")
