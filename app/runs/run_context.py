"""The context of one run: every event leaves the run through `emit`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, Protocol

from msgspec import Struct, field

from app.core.events import TERMINAL, AgentEvent, TextDelta
from app.core.time_slice import TimeSlice
from app.policy.guards import Guards
from app.runs.emitter import Emitter
from app.transcript.conversation import Conversation
from app.transcript.run_totals import RunTotals


class EventSink(Protocol):
    """A consumer that takes events in the callback that has read them, unless it is `full`."""

    @property
    def full(self) -> bool: ...

    def add(self, event: AgentEvent) -> None: ...


class RunContext(Struct, frozen=True):
    """`run` is the run's id. The consumer of `events` writes them to the run's log before it takes the next one.

    Events reach it by a shorter way if it has a `sink`: the consumer has taken all before, so they can be added at
    once, in their order. Through the generator come those for which the sink is full, and the last one.
    """

    run: str
    conversation: Conversation
    guards: Guards
    totals: RunTotals
    sink: EventSink | None = None
    _emitter: Emitter[AgentEvent] = field(default_factory=Emitter)
    _time_slice: TimeSlice = field(default_factory=TimeSlice)

    async def emit(self, event: AgentEvent) -> None:
        """Hide the canary's code, count the event in the totals and wait until the consumer has taken it.

        Between many events without a wait, other tasks get their turns.
        """
        event, sink = self._recorded(event), self.sink
        if sink is None or sink.full or event.type in TERMINAL:
            await self._emitter.emit(event)
        else:
            sink.add(event)
        await self._time_slice.pause_if_over()

    async def emit_all(self, events: Iterable[AgentEvent]) -> None:
        for event in events:
            await self.emit(event)

    def emit_now(self, event: AgentEvent, sink: EventSink) -> None:
        """Do the same without waiting, in a callback of the connection that the run waits for.

        A reply hides the code in its text itself.
        """
        sink.add(event if type(event) is TextDelta else self._recorded(event))

    def _recorded(self, event: AgentEvent) -> AgentEvent:
        event = self.guards.plain(event)
        self.totals.record(event)
        return event

    def events(self, body: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[AgentEvent, None]:
        """Return what `body` emits. Closing the generator cancels `body` where it waits."""
        return self._emitter.stream(body)
