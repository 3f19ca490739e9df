"""The context of one run: every event leaves the run through `emit`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from app.core.events import AgentEvent
from app.policy.guards import Guards
from app.runs.emitter import Emitter
from app.transcript.conversation import Conversation
from app.transcript.run_totals import RunTotals


@dataclass(frozen=True, slots=True)
class RunContext:
    """`run` is the run's id. The consumer of `events` writes them to the run's log before it takes the next one."""

    run: str
    conversation: Conversation
    guards: Guards
    totals: RunTotals
    _emitter: Emitter[AgentEvent] = field(default_factory=Emitter)

    async def emit(self, event: AgentEvent) -> None:
        """Hide the canary's code, count the event in the totals and wait until the consumer has taken it."""
        event = self.guards.plain(event)
        self.totals.record(event)
        await self._emitter.emit(event)

    def events(self, body: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[AgentEvent, None]:
        """Return what `body` emits. Closing the generator cancels `body` where it waits."""
        return self._emitter.stream(body)
