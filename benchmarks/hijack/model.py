"""A model that has been taken over: it does what the user asked until it reads a stranger's order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from app.core.provider import BaseProvider, CallForm, Finished, ModelRequest, Piece, TextChunk
from benchmarks.hijack.plots import Script
from parsing import Call


@dataclass(slots=True)
class Hijackable(BaseProvider):
    """A Provider. It follows `errand`; once a tool's result holds `marker`, it follows `orders()` and nothing else."""

    errand: Script
    marker: str = ""
    orders: Callable[[], Script] | None = None
    model: str = "hijackable"
    call_form: CallForm = CallForm.NATIVE
    obeying: Script | None = None
    _made: int = field(default=0, init=False)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        if self.orders and not self.obeying and self._has_read(request):
            self.obeying, self._made = self.orders(), 0
        script = self.obeying or self.errand
        if self._made == len(script.steps):
            yield TextChunk(script.answer)
            yield Finished("stop")
            return
        step = script.steps[self._made]
        self._made += 1
        yield Call(0, step.name, step.arguments, "native")
        yield Finished("tool_calls")

    async def close(self) -> None:
        """Nothing is open."""

    def _has_read(self, request: ModelRequest) -> bool:
        return any(message.role == "tool" and self.marker in message.text for message in request.messages)
