"""The way of one run's requests to a model: the one that was wanted, or who stands in for it."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from app.core.messages import Message
from app.core.provider import Ability, ModelRequest, Piece, ProviderFailed, Told, Used
from app.models.endpoints.answer_limit import MOST_CHARACTERS, AnswerLimit
from app.models.endpoints.faults import UNREAD
from app.models.endpoints.model_handle import Target
from app.models.endpoints.retry_policy import Patience, Trip
from app.models.endpoints.server_state import Host
from app.models.endpoints.vision_fallback import Able, Looking, nobody_knows
from app.models.http.failures import ENDLESS
from app.models.tokens.counter import Counter

LEAST_ANSWER = 1024  # tokens that a stand-in must have left for its answer, or a part of a smaller window
PATIENCE = Patience()
UNCOUNTED = Used(0, 0)  # what one model had counted before it failed is not what the next one will have


@dataclass(slots=True)
class Route:
    """A Provider for one run of `principal`: it answers as the first of `targets` that can.

    Until the first word of an answer others may be asked instead; after it nothing is ever asked again.
    """

    targets: Sequence[Target]
    principal: str = ""
    patience: Patience = field(default=PATIENCE, repr=False)
    may_ask: Callable[[], None] = lambda: None  # raises what forbids it; who has waited is to ask once more
    able: Able = nobody_knows
    most_characters: int = MOST_CHARACTERS  # of an answer
    _told: set[str] = field(default_factory=set)  # files that this run has been told of in words
    _asking: Target | None = None
    _asked: Target | None = None
    _reached: bool = False

    @property
    def current(self) -> Target:
        """The model that is being asked, or that the next request is for."""
        if self._asking or len(self.targets) == 1:
            return self._asking or self.targets[0]
        awake = (target for target in self.targets if not target.host.rest_of(target.provider.model))
        return next(awake, self.targets[0])

    @property
    def last(self) -> Target:
        """The model that was asked last."""
        return self._asked or self.current

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """The answer of the first that gives one. Raises ProviderFailed if nobody does, or if it breaks off."""
        trip, begun, counted, self._reached = self._trip(request), False, False, False
        limit = AnswerLimit(self.most_characters)
        try:
            while True:
                self._asking = self._asked = trip.target
                host = trip.target.host
                request.afford()  # a stand-in may be dearer
                await self._check_room(trip.target, request)
                trip.target.learn_slots()
                place = host.queue.join(self.principal)
                try:
                    number = place.number
                    while number:
                        yield waiting(host, number)
                        number = await place.moved(number)
                    self.may_ask()
                    before, self._reached = self._reached, True
                    asked = replace(request, key=trip.ask().value)
                    async with aclosing(self._answer(trip.target, asked)) as pieces:
                        async for piece in pieces:
                            if not begun:
                                begun, counted = begins(piece), counted or isinstance(piece, Used)
                                if begun and (switched := trip.answers()):
                                    yield switched
                            ending = limit.cut(piece)
                            for heard in ending or (piece,):
                                yield heard
                            if ending:
                                return
                    return
                except ProviderFailed as failure:
                    if begun:
                        for last in broken_off(failure, host, limit):
                            yield last
                        return
                    self._reached = before or failure.code not in UNREAD
                    following = trip.failed(failure)
                finally:
                    place.leave()
                for told in following.told:
                    yield told
                if following.failure:
                    raise following.failure
                if counted:
                    yield UNCOUNTED
                await self.patience.sleep(following.wait_s)
        finally:
            self._asking = None

    def _answer(self, target: Target, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Without files nothing stands between the model and who listens: it would cost time with each token."""
        if not any(message.attachments for message in request.messages):
            return target.provider.stream(request)
        return Looking(target.name, target.provider, self.able, self._told).stream(request)

    def _trip(self, request: ModelRequest) -> Trip:
        until = math.inf if request.left_s is None else self.patience.now() + request.left_s
        most_s = math.inf if request.inactivity_s is None else request.inactivity_s
        return Trip(self.targets, self.patience, most_s, until)

    async def _check_room(self, target: Target, request: ModelRequest) -> None:
        """Whether a stand-in has the room for what was made to fit another model. Raises ProviderFailed."""
        if target is self.targets[0]:
            return
        window = await target.counter.window()
        counted = sum(map(target.counter.measure, request.whole()))
        counted += target.counter.described(request.tools) if target.provider.native_tools else 0
        if counted > window - min(LEAST_ANSWER, window // 16):
            message = f"The prompt has {counted} tokens, and {target.name} can read {window}."
            raise ProviderFailed("model_context", message, retryable=False, window=window)

    @property
    def model(self) -> str:
        return self.current.provider.model

    @property
    def native_tools(self) -> bool:
        return self.current.provider.native_tools

    @property
    def teach_fences(self) -> bool:
        return self.current.provider.teach_fences

    @property
    def calls_natively(self) -> bool:
        return self.current.provider.calls_natively

    @property
    def leaves_calls(self) -> bool:
        return self.current.provider.leaves_calls

    @property
    def counter(self) -> Counter:
        """Of the model that the next request is for."""
        return self.current.counter

    async def window(self) -> int | None:
        return await self.current.provider.window()

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        return await self.current.provider.count_tokens(texts)

    def added(self, message: Message) -> str:
        return self.current.provider.added(message)

    def prompt_suffix(self) -> str:
        return self.current.provider.prompt_suffix()

    def abilities(self) -> Sequence[Ability]:
        return self.current.provider.abilities()

    def show(self, name: str, value: bool | str, detail: str) -> None:
        self.last.provider.show(name, value, detail)

    def cost(self, used: Used) -> float | None:
        return self.last.cost(used)

    @property
    def answers(self) -> str:
        return self.last.name

    @property
    def reached(self) -> bool:
        return self._reached

    def apart(self) -> Route:
        return replace(self, _asking=None, _asked=None, _reached=False)

    async def close(self) -> None:
        """The models belong to all runs: nothing to do."""


def begins(piece: Piece) -> bool:
    """Whether the model has said something, which nobody may say once more."""
    return not isinstance(piece, Told | Used)


def broken_off(failure: ProviderFailed, host: Host, limit: AnswerLimit) -> Sequence[Piece]:
    """The end of an answer that has begun and is too long to go on. Raises any other failure."""
    if failure.code == ENDLESS:
        return limit.ending()
    host.failed(failure)
    raise failure


def waiting(host: Host, number: int) -> Told:
    limit = host.queue.limit
    at_a_time = "one request" if limit == 1 else f"{limit} requests"
    who = host.name or "The model"
    return Told("waiting", f"{who} answers {at_a_time} at a time: this one is number {number} in the line.")
