"""Replay of reasoning and opaque metadata to the models that need them.

DeepSeek: the reasoning of a turn with calls must be in every later request, or it answers 400
(https://api-docs.deepseek.com/guides/thinking_mode). V3 accepted it until the end of the turn; R1 refused it
(https://api-docs.deepseek.com/guides/reasoning_model). Kimi requires it with each call that it reasoned about, or
answers 400, and K2.7 with every message (https://platform.kimi.ai/docs/guide/use-kimi-k2-thinking-model). MiMo is like
DeepSeek. GLM (https://docs.z.ai/guides/capabilities/thinking-mode) and MiniMax M2 want all of it, of which their
templates take what they need.

Any other model that thinks between its calls (gpt-oss, Qwen) gets its own reasoning back with the calls of the turn, in
the field that it came in: vLLM reads no other (https://github.com/vllm-project/vllm/issues/38488), and chat templates
leave out what their models were not trained with. A server that refuses the field does not get it again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Any

from msgspec import Struct

from app.core.messages import AskedCall, Message
from app.models.http.json_body import encodable
from app.models.wire.native_calls import NATIVE
from app.models.wire.opaque_metadata import DETAILS, PARTS, SIGNED, THOUGHT_IN
from app.models.wire.openai.chunks import REASONING_FIELDS
from tools.base.patterns import lazy_pattern

FIELD = "reasoning_content"
BOTH = f"{FIELD} reasoning"  # of llama.cpp and SGLang, and of vLLM: each reads its own


class ReplayedTurns(Enum):
    """Assistant messages whose reasoning is replayed."""

    NONE = "none"
    LATEST = "since the last user message"
    CALLS = "with native calls"
    ALL = "all"


class ReplayRule(Struct, frozen=True):
    """A row: models that need their reasoning back. `blank` replaces missing reasoning of a call.

    `own`: only with replies of the same server and model.
    """

    model: re.Pattern[str]
    turns: ReplayedTurns
    blank: str = " "
    own: bool = False


REPLAY_RULES = (
    ReplayRule(lazy_pattern(r"deepseek.*v3", re.IGNORECASE), ReplayedTurns.LATEST, ""),
    ReplayRule(lazy_pattern(r"deepseek(?!.*r1)", re.IGNORECASE), ReplayedTurns.CALLS, ""),
    ReplayRule(lazy_pattern(r"kimi-?k2\.7", re.IGNORECASE), ReplayedTurns.ALL, " "),
    # It accepts a space, but not an empty text.
    ReplayRule(lazy_pattern(r"kimi", re.IGNORECASE), ReplayedTurns.CALLS, " "),
    ReplayRule(lazy_pattern(r"\bmimo-?v[2-9]", re.IGNORECASE), ReplayedTurns.CALLS, ""),
    ReplayRule(lazy_pattern(r"glm-?(?:4\.[5-9]|[5-9])|minimax-?m[2-9]", re.IGNORECASE), ReplayedTurns.ALL, own=True),
)
ANY = lazy_pattern("")
IN_THE_TURN = ReplayRule(ANY, ReplayedTurns.LATEST, own=True)
TEMPLATE_RULES = {  # by the ability `replay`, which a server's template shows
    "all": ReplayRule(ANY, ReplayedTurns.ALL, own=True),
    "never": ReplayRule(ANY, ReplayedTurns.NONE, own=True),
}


@lru_cache(256)
def replay_rule(model: str) -> ReplayRule | None:
    return next((rule for rule in REPLAY_RULES if rule.model.search(model)), None)


class Missing(StrEnum):
    """A part of a history that its server misses, by the word that refusals name it with."""

    REASONING = FIELD  # DeepSeek, Kimi, and servers of their models under other names
    SIGNATURE = "thought_signature"  # Gemini


class Unwanted(StrEnum):
    """A part of a history that its server refuses."""

    REASONING = "reasoning"


REFUSED = "The model's server refuses the reasoning of earlier replies, which is left out from now on."
UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}  # for calls that it did not make


def missing_in(status: int, text: str) -> frozenset[Missing]:
    """Return what a refusal says is missing; clients lose what is not part of chat completions."""
    return frozenset(one for one in Missing if one in text) if status in (400, 422) else frozenset()


class ReplayPolicy(Struct, frozen=True):
    """Replay policy of one model of one server. `origin` identifies the metadata that it can read.

    `learned` is what its refusals say: what was missing is replaced by something without content. `relayed`: a client
    of ours sends the reasoning back, which has it in both fields.
    """

    origin: str = ""
    rule: ReplayRule | None = None
    learned: frozenset[StrEnum] = frozenset()
    relayed: bool = False

    def fields_for(self, history: Sequence[Message]) -> list[dict[str, Any]]:
        """Return the extra fields of each message; only for requests with native tools."""
        latest = start_of_turn(history)
        thinks = any(True for message in history if message.reasoning)
        return [
            self._fields(message, latest=position >= latest, thinks=thinks) if message.role == "assistant" else {}
            for position, message in enumerate(history)
        ]

    def call_fields(self, call: AskedCall) -> dict[str, Any]:
        return call.sealed.fields if call.sealed and call.sealed.origin == self.origin else {}

    def signature(self, calls: Sequence[AskedCall]) -> dict[str, Any]:
        """Return the fields that the first of these calls needs, if none of them is signed."""
        wanted = Missing.SIGNATURE in self.learned and not any(map(self.call_fields, calls))
        return {SIGNED: UNSIGNED} if wanted else {}

    def unwanted_in(self, status: int, text: str, messages: str) -> frozenset[Unwanted]:
        """Return what a refusal says is not wanted, as far as it is in these messages only because it came so."""
        is_asked = not self._rule.own or Missing.REASONING in self.learned
        named = not is_asked and any(name in text and f'"{name}":' in messages for name in REASONING_FIELDS)
        return frozenset([Unwanted.REASONING]) if named and status in (400, 422, 500) else frozenset()

    def replayed_reasoning(self, message: Message) -> str:
        """Return the reasoning that is sent with a message, for token counting.

        Where a template may leave it out, the counter's scale learns how much of it is in the prompt.
        """
        certain = not self._rule.own or self._rule is TEMPLATE_RULES["all"]
        carried = message.role == "assistant" and certain and self._fields(message, latest=True, thinks=True)
        return message.reasoning if carried else ""

    @property
    def _rule(self) -> ReplayRule:
        return self.rule or IN_THE_TURN

    def _fields(self, message: Message, *, latest: bool, thinks: bool) -> dict[str, Any]:
        if not (thinks or message.sealed or self.learned):
            return {}
        calls = any(call.dialect == NATIVE for call in message.calls)
        sealed = dict(message.sealed.fields) if message.sealed and message.sealed.origin == self.origin else {}
        field = sealed.pop(THOUGHT_IN, "") or (BOTH if self.relayed else "")
        sealed = sealed if calls else {name: value for name, value in sealed.items() if name == DETAILS}
        rule = self._rule
        if Missing.REASONING in self.learned:
            return sealed | {FIELD: message.reasoning or rule.blank}
        if rule.own and (not field or Unwanted.REASONING in self.learned):
            return sealed
        if not thinks or DETAILS in sealed:  # the details contain the same reasoning
            return sealed
        wanted = {
            ReplayedTurns.NONE: False,
            ReplayedTurns.LATEST: latest and (calls or not rule.own),
            ReplayedTurns.CALLS: calls,
            ReplayedTurns.ALL: True,
        }[rule.turns]
        thought = message.reasoning or (rule.blank if calls and not rule.own else None)
        return sealed | _carrying(field or FIELD, thought, message.text) if wanted and thought is not None else sealed


def _carrying(field: str, thought: str, text: str) -> dict[str, Any]:
    """Return the field of a message that reasoning goes back in, beside its text or as a part of that."""
    if field != PARTS:
        return dict.fromkeys(field.split(), thought)
    part = {"type": "thinking", "thinking": [{"type": "text", "text": encodable(thought)}]}
    return {PARTS: [part, {"type": "text", "text": encodable(text)}] if text else [part]}


def start_of_turn(history: Sequence[Message]) -> int:
    """Return the position after the last user message; one sent during the run, after a result, does not count."""
    for position in range(len(history) - 1, -1, -1):
        before = history[position - 1].role if position else None
        if history[position].role == "user" and before not in ("tool", "user"):
            return position + 1
    return 0
