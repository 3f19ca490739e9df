"""Replay of reasoning and opaque metadata to the models that need them.

DeepSeek: the reasoning of a turn with calls must be in every later request, or it answers 400
(https://api-docs.deepseek.com/guides/thinking_mode). V3 accepted it until the end of the turn; R1 refused it
(https://api-docs.deepseek.com/guides/reasoning_model). Kimi requires it with each call that it reasoned about, or
answers 400, and K2.7 with every message (https://platform.kimi.ai/docs/guide/use-kimi-k2-thinking-model). Other
models get worse with it, or refuse the unknown field.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Any

from msgspec import Struct

from app.core.messages import AskedCall, Message
from app.models.wire.native_calls import NATIVE
from app.models.wire.opaque_metadata import DETAILS, SIGNED
from tools.base.patterns import lazy_pattern

FIELD = "reasoning_content"


class ReplayedTurns(Enum):
    """Assistant messages whose reasoning is replayed."""

    LATEST = "since the last user message"
    CALLS = "with native calls"
    ALL = "all"


class ReplayRule(Struct, frozen=True):
    """A row: models that need their reasoning back. `blank` replaces missing reasoning of a call."""

    model: re.Pattern[str]
    turns: ReplayedTurns
    blank: str


REPLAY_RULES = (
    ReplayRule(lazy_pattern(r"deepseek.*v3", re.IGNORECASE), ReplayedTurns.LATEST, ""),
    ReplayRule(lazy_pattern(r"deepseek(?!.*r1)", re.IGNORECASE), ReplayedTurns.CALLS, ""),
    ReplayRule(lazy_pattern(r"kimi-?k2\.7", re.IGNORECASE), ReplayedTurns.ALL, " "),
    # It accepts a space, but not an empty text.
    ReplayRule(lazy_pattern(r"kimi", re.IGNORECASE), ReplayedTurns.CALLS, " "),
)


@lru_cache(256)
def replay_rule(model: str) -> ReplayRule | None:
    return next((rule for rule in REPLAY_RULES if rule.model.search(model)), None)


class Missing(StrEnum):
    """A part of a history that its server misses, by the word that refusals name it with."""

    REASONING = FIELD  # DeepSeek, Kimi, and servers of their models under other names
    SIGNATURE = "thought_signature"  # Gemini


UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}  # for calls that it did not make


def missing_in(status: int, text: str) -> frozenset[Missing]:
    """Return what a refusal says is missing; clients lose what is not part of chat completions."""
    return frozenset(one for one in Missing if one in text) if status in (400, 422) else frozenset()


class ReplayPolicy(Struct, frozen=True):
    """Replay policy of one model of one server. `origin` identifies the metadata that it can read.

    `missing` is replaced by something without content.
    """

    origin: str = ""
    rule: ReplayRule | None = None
    missing: frozenset[StrEnum] = frozenset()

    def fields_for(self, history: Sequence[Message]) -> list[dict[str, Any]]:
        """Return the extra fields of each message; only for requests with native tools."""
        latest = start_of_turn(history)
        thinks = any(message.reasoning for message in history)
        return [
            self._fields(message, latest=position >= latest, thinks=thinks) if message.role == "assistant" else {}
            for position, message in enumerate(history)
        ]

    def call_fields(self, call: AskedCall) -> dict[str, Any]:
        return call.sealed.fields if call.sealed and call.sealed.origin == self.origin else {}

    def signature(self, calls: Sequence[AskedCall]) -> dict[str, Any]:
        """Return the fields that the first of these calls needs, if none of them is signed."""
        wanted = Missing.SIGNATURE in self.missing and not any(map(self.call_fields, calls))
        return {SIGNED: UNSIGNED} if wanted else {}

    def replayed_reasoning(self, message: Message) -> str:
        """Return the reasoning that is sent with a message, for token counting."""
        carried = message.role == "assistant" and self._fields(message, latest=True, thinks=True)
        return message.reasoning if carried else ""

    def _fields(self, message: Message, *, latest: bool, thinks: bool) -> dict[str, Any]:
        calls = any(call.dialect == NATIVE for call in message.calls)
        sealed = message.sealed.fields if calls and message.sealed and message.sealed.origin == self.origin else {}
        if Missing.REASONING in self.missing:
            return sealed | {FIELD: message.reasoning or (self.rule.blank if self.rule else " ")}
        if self.rule is None or not thinks or DETAILS in sealed:  # the details contain the same reasoning
            return sealed
        wanted = {ReplayedTurns.LATEST: latest, ReplayedTurns.CALLS: calls, ReplayedTurns.ALL: True}[self.rule.turns]
        thought = message.reasoning or (self.rule.blank if calls else None)
        return sealed | {FIELD: thought} if wanted and thought is not None else sealed


def start_of_turn(history: Sequence[Message]) -> int:
    """Return the position after the last user message; one sent during the run, after a result, does not count."""
    for position in range(len(history) - 1, -1, -1):
        before = history[position - 1].role if position else None
        if history[position].role == "user" and before not in ("tool", "user"):
            return position + 1
    return 0
