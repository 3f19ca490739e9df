"""Observers of runs and of their model requests: metrics and traces are made of what they see.

They are called in the event loop, beside the work: an observer returns at once, awaits nothing and raises nothing. No
observer sees the pieces of an answer, so that a token costs the same with any number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct, field

from app.core.events import AgentEvent
from app.core.messages import AskedCall
from app.core.provider import ModelRequest, Provider

ObserveEvent = Callable[[AgentEvent], None]


class ObservedRun(Struct, frozen=True, kw_only=True):
    """The run that an event belongs to. `created` is a Unix time; `unlisted`: nothing of it is kept.

    `traceparent` is that of its request or of the call that delegates it, empty without one.
    """

    id: str
    session: str
    principal: str
    model: str
    created: float
    unlisted: bool = False
    traceparent: str = ""


class ObservedAnswer(Protocol):
    """The answer to a model request, as far as it came. `stopped` is the reason of its end, None if it broke off."""

    stopped: str | None

    @property
    def shown(self) -> str: ...

    @property
    def calls(self) -> Sequence[AskedCall]: ...


class RequestSpan(Protocol):
    """The span of a model request under way. `traceparent` is what its server gets, empty for nothing."""

    traceparent: str


class ObservedRequest(Struct, frozen=True):
    """A model request that has ended, of a round or of a side query.

    `model` is the one that was asked, `answered_by` the last that was tried, as ENDPOINT/MODEL. Times are those of
    `time.monotonic`: `sent` when the request left for the queue, `first` with the first piece of the answer. `error` is
    a code, `cancelled`, `budget` or `internal`. `in_round` is False for side queries. `span` is what the tracer has
    begun for it, `provider` the one that was asked.
    """

    run: str
    session: str
    model: str
    answered_by: str
    sent: float
    first: float | None
    ended: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None
    measured: bool
    cost: float | None
    error: str | None
    in_round: bool
    span: RequestSpan | None = None
    provider: Provider | None = None
    request: ModelRequest | None = None
    answer: ObservedAnswer | None = None


class Tracer(Protocol):
    """Begins the spans of model requests; `ObservedRequest.span` ends them."""

    def begin_request(self, run: str, session: str, provider: Provider, *, in_round: bool) -> RequestSpan: ...

    def traceparent(self, run: str, call: str) -> str:
        """Return that of a call of a run under way; empty if it is not traced."""
        ...

    def leave(self, run: str) -> None:
        """Take note that a run is not under way here any more: it has ended, or goes on later or elsewhere."""
        ...


class Observer(Protocol):
    """Sees the events of every run, without deltas and redacted, and every model request at its end."""

    def observe_event(self, run: ObservedRun, event: AgentEvent) -> None: ...

    def observe_request(self, request: ObservedRequest) -> None: ...


class Observers(Struct):
    """The observers of one server: a list that a server fills before its first run. At most one of them is a tracer."""

    all: list[Observer] = field(default_factory=list)
    tracer: Tracer | None = None

    def observe_request(self, request: ObservedRequest) -> None:
        for observer in self.all:
            observer.observe_request(request)

    def traceparent(self, run: str, call: str) -> str:
        """Return that of a call, for what it begins; empty where nothing is traced."""
        return self.tracer.traceparent(run, call) if self.tracer else ""

    def leave(self, run: str) -> None:
        """Take note that a run is not under way here any more."""
        if self.tracer:
            self.tracer.leave(run)

    def of_run(self, run: ObservedRun) -> ObserveEvent | None:
        """Return the function that takes the events of a run; None if there is no observer."""
        return partial(self._observe_event, run) if self.all else None

    def _observe_event(self, run: ObservedRun, event: AgentEvent) -> None:
        for observer in self.all:
            observer.observe_event(run, event)
