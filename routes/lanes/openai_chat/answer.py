"""The parts of an answer that streams and whole answers share: its text, its id, its finish reason, its usage.

Clients of chat receive one text for all rounds, and no empty lines around calls. The rules depend on the text alone, so
that a log gives the same answer streamed, joined or whole: blanks directly behind text are its own, as the model's
server has them in its cache; other white space is held until text follows it; before a call or a further round, and
around thoughts in front of all text, it is dropped; a further round begins with an empty line, if text came before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from routes.lanes.event_text import WHITE, is_whole, parted_end
from routes.lanes.lane import Turn

EMPTY_LINE = "\n\n"
STOP, LENGTH, CALLS, LEGACY_CALL, FILTERED = "stop", "length", "tool_calls", "function_call", "content_filter"
# Reasons of `run.finished` after which the answer is whole. Clients know no word for any other than a limit.
WHOLE = frozenset({"answered", "client_tools", "loop_broken"})


class RunningText(Struct):
    _begun: bool = False  # text has been sent
    _held: str = ""  # white space, or what separates rounds
    _strips: bool = False  # white space in front of the next text is dropped

    def part(self) -> None:
        """A round begins, or a call stands here."""
        self._held = EMPTY_LINE if self._begun else ""
        self._strips = self._begun

    def think(self) -> None:
        """A thought stands here."""
        if not self._begun:
            self._held, self._strips = "", True

    def add(self, text: str) -> str:
        """Take more text. Return what is sent of it now."""
        if self._strips:
            text = text.lstrip(WHITE)
        if not text.strip(WHITE) and (self._held or not self._begun):
            self._held += text
            return ""
        body, end = parted_end(text)
        sent, self._held = self._held + body, end
        self._begun, self._strips = True, False
        return sent

    def add_literal(self, literal: str) -> str:
        """The same for a JSON string, which is what comes back; empty if nothing is sent.

        Nearly always it stands behind text, does not end with a line, and is not decoded.
        """
        if self._begun and not self._strips and not self._held and is_whole(literal):
            return literal
        text = self.add(json.loads(literal))
        return json.dumps(text) if text else ""

    def end(self, *, calls: bool) -> str:
        """Return what is sent at the end of the answer: the white space that its text ends with."""
        return "" if calls or self._strips else self._held


def completion_id(turn: Turn) -> str:
    return f"chatcmpl-{turn.run.removeprefix('run_')}"


def finish_reason(reason: str, *, calls: int, cut: bool, declined: bool, legacy: bool = False) -> str:
    """`tool_calls` exactly if there are calls; never a word of ours, which would end the loops of clients."""
    if calls:
        return LEGACY_CALL if legacy else CALLS
    if declined:
        return FILTERED
    return LENGTH if cut or reason not in WHOLE else STOP


def usage_body(usage: Mapping[str, Any], cached: int) -> dict[str, Any]:
    """The totals of the fields of `usage`, which are empty for a run that has asked no model."""
    prompt, completion = usage.get("total_prompt_tokens", 0), usage.get("total_completion_tokens", 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
