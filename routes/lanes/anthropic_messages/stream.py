"""Encoder of streams: https://platform.claude.com/docs/en/build-with-claude/streaming.

A message is a row of blocks, each with a start, deltas and a stop, and one block is open at a time. Text and thoughts
stay open while deltas of their kind come; a call is a block that is opened, filled and closed by one event.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from app.core import events
from app.storage.runs import EventRow
from app.transcript.reply import NEVER_MADE
from routes.lanes.answer import HandedCall, OwnCall
from routes.lanes.anthropic_messages.blocks import (
    DRAGOMAN,
    Block,
    estimated_usage,
    message_id,
    own_tool_result,
    own_tool_use,
    signature_of,
    stop_reason,
    tool_use,
    usage_of,
)
from routes.lanes.errors import STOPPED, anthropic_error, failure_of
from routes.lanes.event_text import WHITE, arguments_text, fields_of, is_whole, parted_end, text_literal
from routes.lanes.lane import Turn

TOKEN = events.TextDelta.type
END = "}}\n\n"  # of a frame with a delta


class Kind(Struct, frozen=True):
    """A kind of block with words in it: how it starts, and how its deltas begin."""

    start: Block
    delta: str


TEXT = Kind({"type": "text", "text": ""}, '"type":"text_delta","text":')
THOUGHT = Kind({"type": "thinking", "thinking": "", "signature": ""}, '"type":"thinking_delta","thinking":')


class MessagesEncoder(Struct):
    """The frames of one run. `open` is the kind of the open block, whose deltas begin with `head`.

    White space is sent with the word behind it, not around calls or between thoughts and text: `tail` is that at the
    end of the open block, `lead` that of a block of the kind `waiting`, which begins with its first word.
    """

    turn: Turn
    open: Kind | None = None
    head: str = ""
    blocks: int = 0
    tail: str = ""
    waiting: Kind | None = None
    lead: str = ""
    repeated: int = 0  # characters of reasoning to come that were sent as text
    usage: dict[str, Any] = field(default_factory=dict)
    cached: int = 0
    notices: set[str] = field(default_factory=set)  # their codes, of this round
    own_calls: set[str] = field(default_factory=set)
    over: bool = False  # the stream ends with its run

    @property
    def shows_own_tools(self) -> bool:
        return DRAGOMAN in self.turn.request.echo

    def frames(self, row: EventRow) -> str:
        if row.type == TOKEN:
            return self._add_words(TEXT, text_literal(row))
        encode = ENCODERS.get(row.type)
        return encode(self, row) if encode else ""

    def _start(self, _: EventRow) -> str:
        message: Block = {
            "id": message_id(self.turn),
            "type": "message",
            "role": "assistant",
            "model": self.turn.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": estimated_usage(self.turn.request),
        }
        return frame("message_start", message=message) + frame("ping")

    def _start_round(self, _: EventRow) -> str:
        """A round is a block of its own, unless it goes on with an answer that had broken off."""
        goes_on, self.repeated = "continued" in self.notices, 0
        self.notices.clear()
        return "" if goes_on else self._close()

    def _add_words(self, kind: Kind, literal: str) -> str:
        if self.open is kind and not self.tail and is_whole(literal):  # nearly always
            return f"{self.head}{literal}{END}"
        text = json.loads(literal)
        if self.open is kind:
            return self._extend(self.tail + text)
        if self.waiting is not kind:
            self.waiting, self.lead = kind, ""
        self.lead += text
        if not self.lead.strip(WHITE):
            return ""
        text = self.lead.lstrip(WHITE) if self.blocks or self.open else self.lead
        begun = self._close() + self._begin(kind.start)
        self.open = kind
        self.head = f'{_head("content_block_delta")},"index":{self.blocks},"delta":{{{kind.delta}'
        return begun + self._extend(text)

    def _extend(self, text: str) -> str:
        words, self.tail = parted_end(text)
        return f"{self.head}{json.dumps(words)}{END}" if words else ""

    def _begin(self, block: Block) -> str:
        return frame("content_block_start", index=self.blocks, content_block=block)

    def _delta(self, **delta: Any) -> str:
        return frame("content_block_delta", index=self.blocks, delta=delta)

    def _stop(self) -> str:
        self.blocks += 1
        return frame("content_block_stop", index=self.blocks - 1)

    def _close(self) -> str:
        """Close the open block, if there is one."""
        kind, self.open, self.waiting, self.tail, self.lead = self.open, None, None, "", ""
        if kind is None:
            return ""
        signed = self._delta(type="signature_delta", signature=signature_of(self.turn)) if kind is THOUGHT else ""
        return signed + self._stop()

    def _add_reasoning(self, row: EventRow) -> str:
        if not self.repeated:
            return self._add_words(THOUGHT, text_literal(row))
        text = fields_of(row)["text"]
        new, self.repeated = text[self.repeated :], max(0, self.repeated - len(text))
        return self._add_words(THOUGHT, json.dumps(new)) if new else ""

    def _reclassify(self, row: EventRow) -> str:
        """The text has been sent and cannot be taken back, so its repetition as reasoning is left out."""
        self.repeated += fields_of(row)["characters"]
        return ""

    def _hand_over(self, row: EventRow) -> str:
        fields = fields_of(row)
        return self._call(tool_use(HandedCall(fields["call"], fields["name"], fields["arguments"])))

    def _call(self, block: Block) -> str:
        """A call: without its arguments first, because clients read them from the deltas alone."""
        begun = self._close() + self._begin(block | {"input": {}})
        return begun + self._delta(type="input_json_delta", partial_json=arguments_text(block["input"])) + self._stop()

    def _own_call(self, row: EventRow) -> str:
        """A call of the server's own; text behind it is a block of its own, also where the call is hidden."""
        fields = fields_of(row)
        self.own_calls.add(fields["call"])
        call = OwnCall(fields["call"], fields["name"], fields["arguments"])
        return self._call(own_tool_use(call)) if self.shows_own_tools else self._close()

    def _own_result(self, row: EventRow) -> str:
        fields = fields_of(row)
        return self._show_result(fields["call"], fields["text"], ok=fields["ok"])

    def _reject(self, row: EventRow) -> str:
        """A call that was refused may not have been started; one that was only thought of is none."""
        fields = fields_of(row)
        call, name, reason = fields.get("call"), fields.get("name"), fields["reason"]
        if call is None or reason in NEVER_MADE:
            return ""
        shown = ""
        if call not in self.own_calls:
            if not name:
                return ""
            shown = self._close()
            self.own_calls.add(call)
            shown += self._call(own_tool_use(OwnCall(call, name, {}))) if self.shows_own_tools else ""
        return shown + self._show_result(call, reason, ok=False)

    def _show_result(self, call: str, text: str, *, ok: bool) -> str:
        if not self.shows_own_tools or call not in self.own_calls:
            return ""
        return self._close() + self._begin(own_tool_result(call, text, ok=ok)) + self._stop()

    def _note(self, row: EventRow) -> str:
        self.notices.add(fields_of(row)["code"])
        return ""

    def _count(self, row: EventRow) -> str:
        self.usage = fields_of(row)
        self.cached += self.usage.get("cached_tokens") or 0
        return ""

    def _finish(self, row: EventRow) -> str:
        end = fields_of(row)["reason"]
        if stopped := STOPPED.get(end):
            return error_frame(stopped)
        reason = stop_reason(end, cut="cut" in self.notices, declined="refusal" in self.notices)
        delta = {"stop_reason": reason, "stop_sequence": None}
        ended = frame("message_delta", delta=delta, usage=usage_of(self.usage, self.cached))
        return self._close() + ended + frame("message_stop")

    def _fail(self, row: EventRow) -> str:
        return error_frame(fields_of(row))


ENCODERS: dict[str, Callable[[MessagesEncoder, EventRow], str]] = {
    events.RunStarted.type: MessagesEncoder._start,
    events.RoundStarted.type: MessagesEncoder._start_round,
    events.ReasoningDelta.type: MessagesEncoder._add_reasoning,
    events.TextReclassified.type: MessagesEncoder._reclassify,
    events.ToolHanded.type: MessagesEncoder._hand_over,
    events.ToolStarted.type: MessagesEncoder._own_call,
    events.ToolFinished.type: MessagesEncoder._own_result,
    events.ToolRejected.type: MessagesEncoder._reject,
    events.Notice.type: MessagesEncoder._note,
    events.Usage.type: MessagesEncoder._count,
    events.RunFinished.type: MessagesEncoder._finish,
    events.RunFailed.type: MessagesEncoder._fail,
}


def error_frame(failed: Mapping[str, Any]) -> str:
    return _frame("error", anthropic_error(failure_of(failed))[1])


def frame(type: str, **fields: Any) -> str:
    return _frame(type, {"type": type, **fields})


def _frame(event: str, fields: dict[str, Any]) -> str:
    return f"event: {event}\ndata: {json.dumps(fields, separators=(',', ':'))}\n\n"


def _head(type: str) -> str:
    """The beginning of a frame, up to its type."""
    return f'event: {type}\ndata: {{"type":"{type}"'
