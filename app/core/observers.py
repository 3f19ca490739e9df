"""Observers of runs and of their model requests: metrics and traces are made of what they see.

They are called in the event loop, beside the work: an observer returns at once, awaits nothing and raises nothing. No
observer sees the pieces of an answer, so that a token costs the same with any number of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from msgspec import Struct, field

from app.core.events import AgentEvent

ObserveEvent = Callable[[AgentEvent], None]


class ObservedRun(Struct, frozen=True):
    """The run that an event belongs to. `created` is a Unix time; `unlisted`: nothing of it is kept."""

    id: str
    session: str
    principal: str
    model: str
    created: float
    unlisted: bool = False


class ObservedRequest(Struct, frozen=True):
    """A model request that has ended, of a round or of a side query.

    `model` is the one that was asked, `answered_by` the last that was tried, as ENDPOINT/MODEL. Times are those of
    `time.monotonic`: `sent` when the request left for the queue, `first` with the first piece of the answer. `error` is
    a code, `cancelled`, `budget` or `internal`. `in_round` is False for side queries.
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


class Observer(Protocol):
    """Sees the events of every run, without deltas and redacted, and every model request at its end."""

    def observe_event(self, run: ObservedRun, event: AgentEvent) -> None: ...

    def observe_request(self, request: ObservedRequest) -> None: ...


class Observers(Struct):
    """The observers of one server: a list that a server fills before its first run."""

    all: list[Observer] = field(default_factory=list)

    def observe_request(self, request: ObservedRequest) -> None:
        for observer in self.all:
            observer.observe_request(request)

    def of_run(self, run: ObservedRun) -> ObserveEvent | None:
        """Return the function that takes the events of a run; None if there is no observer."""
        return partial(self._observe_event, run) if self.all else None

    def _observe_event(self, run: ObservedRun, event: AgentEvent) -> None:
        for observer in self.all:
            observer.observe_event(run, event)
