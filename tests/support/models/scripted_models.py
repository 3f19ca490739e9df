"""Scripted models that do more than say their lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.core.clock import Clock
from app.core.messages import Message
from app.core.provider import Ability, CallForm
from app.models.scripted import Scripted
from app.models.wire.openai.history import added


class Letters(Scripted):
    """A model whose tokens are characters. `asked` are the texts that it was given to count."""

    def __init__(self, *, bare: bool = False, clock: Clock | None = None, window: int | None = None) -> None:
        super().__init__([])
        self.asked: list[str] = []
        self.said_window = window
        self._bare = bare
        self._clock = clock

    async def window(self) -> int | None:
        return self.said_window

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        self.asked += texts
        return [len(text) for text in texts]

    def added(self, message: Message) -> str:
        return added(message, bare=self._bare, clock=self._clock)


class Blind(Scripted):
    def abilities(self) -> Sequence[Ability]:
        return [Ability("images", False, "server", "/props")]


class Native(Scripted):
    """Calls natively, at a server that leaves calls in the text, or not."""

    def __init__(self, name: str, *replies: Any, leaves_calls: bool = False) -> None:
        super().__init__(replies, name, call_form=CallForm.NATIVE)
        self._leaves = leaves_calls

    @property
    def leaves_calls(self) -> bool:
        return self._leaves
