"""What goes back to a model besides its words and calls: its thoughts, where it needs them, and what is sealed.

DeepSeek: the thoughts of a turn with calls belong to every later request, or it answers 400
(https://api-docs.deepseek.com/guides/thinking_mode). V3 took them up to the end of the turn; R1 refused them
(https://api-docs.deepseek.com/guides/reasoning_model). Kimi wants them with each call that it has thought about, or
answers 400, and K2.7 with every message (https://platform.kimi.ai/docs/guide/use-kimi-k2-thinking-model). All others
are worse for it, or refuse a field that they do not know.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from app.core.messages import AskedCall, Message
from app.models.wire.native_calls import NATIVE
from app.models.wire.opaque_metadata import DETAILS


class ReplayedTurns(Enum):
    """Which messages of the model carry their thoughts."""

    LATEST = "those since the person's last message"
    CALLS = "those with native calls"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ReplayRule:
    """A kind of model that needs its thoughts. `blank` stands for none, where a call was made without."""

    model: re.Pattern[str]
    turns: ReplayedTurns
    blank: str
    field: str = "reasoning_content"


REPLAY_RULES = (
    ReplayRule(re.compile(r"deepseek.*v3", re.IGNORECASE), ReplayedTurns.LATEST, ""),
    ReplayRule(re.compile(r"deepseek(?!.*r1)", re.IGNORECASE), ReplayedTurns.CALLS, ""),
    ReplayRule(re.compile(r"kimi-?k2\.7", re.IGNORECASE), ReplayedTurns.ALL, " "),
    ReplayRule(re.compile(r"kimi", re.IGNORECASE), ReplayedTurns.CALLS, " "),  # it takes a space, but not an empty text
)


def replay_rule(model: str) -> ReplayRule | None:
    return next((echo for echo in REPLAY_RULES if echo.model.search(model)), None)


@dataclass(frozen=True, slots=True)
class ReplayPolicy:
    """For one model of one server. `origin` is whose seals it can read."""

    origin: str = ""
    echo: ReplayRule | None = None

    def beside(self, history: Sequence[Message]) -> list[dict[str, Any]]:
        """For each message, the fields that go with it; for servers that are offered tools natively."""
        latest = start_of_turn(history)
        thinks = any(message.reasoning for message in history)
        return [
            self._fields(message, latest=position >= latest, thinks=thinks) if message.role == "assistant" else {}
            for position, message in enumerate(history)
        ]

    def with_call(self, call: AskedCall) -> dict[str, Any]:
        return call.sealed.fields if call.sealed and call.sealed.origin == self.origin else {}

    def echoed(self, message: Message) -> str:
        """The thoughts that the message carries, for those who count its tokens."""
        carried = message.role == "assistant" and self._fields(message, latest=True, thinks=True)
        return message.reasoning if carried else ""

    def _fields(self, message: Message, *, latest: bool, thinks: bool) -> dict[str, Any]:
        calls = any(call.dialect == NATIVE for call in message.calls)
        sealed = message.sealed.fields if calls and message.sealed and message.sealed.origin == self.origin else {}
        if self.echo is None or not thinks or DETAILS in sealed:  # which are the same thoughts
            return sealed
        wanted = {ReplayedTurns.LATEST: latest, ReplayedTurns.CALLS: calls, ReplayedTurns.ALL: True}[self.echo.turns]
        thought = message.reasoning or (self.echo.blank if calls else None)
        return sealed | {self.echo.field: thought} if wanted and thought is not None else sealed


def start_of_turn(history: Sequence[Message]) -> int:
    """Behind the person's last message, or a word put in while the model was at work: that comes after a result."""
    for position in range(len(history) - 1, -1, -1):
        before = history[position - 1].role if position else None
        if history[position].role == "user" and before not in ("tool", "user"):
            return position + 1
    return 0
