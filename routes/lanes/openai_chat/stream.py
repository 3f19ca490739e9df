"""Chunks of Chat Completions, one event of a log after the other.

Nearly every chunk is a piece of text: a template around the JSON string that stands in the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from app.core import events
from app.core.document_events import DocumentChanged, DocumentFinished, DocumentSuggested
from app.storage.runs import EventRow
from routes.lanes.errors import STOPPED, failure_of, openai_error
from routes.lanes.event_text import arguments_text, fields_of, text_literal
from routes.lanes.lane import Turn
from routes.lanes.openai_chat.answer import RunningText, completion_id, finish_reason, usage_body

DONE = "data: [DONE]\n\n"
# Shown, if the client wants to see the server's own work.
OWN = frozenset(
    kind.type
    for kind in (
        *(events.RunStarted, events.ToolStarted, events.ToolFinished, events.ToolRejected),
        *(events.ApprovalRequired, events.ApprovalResolved, events.Notice),
        *(events.ContextTrimmed, events.ContextSummarised, events.PlanUpdated),
        *(DocumentFinished, DocumentChanged, DocumentSuggested),
    )
)


class ChatEncoder:
    """The chunks of one run."""

    def __init__(self, turn: Turn) -> None:
        echo, model = turn.request.echo, json.dumps(turn.model)
        self.over = False
        self._head = (
            f'data: {{"id":"{completion_id(turn)}","object":"chat.completion.chunk",'
            f'"created":{turn.created},"model":{model},"choices":'
        )
        self._delta = f'{self._head}[{{"index":0,"delta":'
        self._content = f'{self._delta}{{"content":'
        self._asks_usage: bool = echo.get("usage", False)
        self._shown = OWN if echo.get("events") else frozenset[str]()
        self._legacy: bool = echo.get("legacy", False)
        self._text = RunningText()
        self._thought = self._thinks = False  # reasoning has been sent; it was the last
        self._calls = 0
        self._usage: dict[str, Any] = {}
        self._cached = 0
        self._unsaid = 0  # characters of reasoning that repeat what was sent as text
        self._notices = set[str]()  # their codes, of this round
        self._handlers: dict[str, Callable[[EventRow], str]] = {
            events.RunStarted.type: self._start,
            events.RoundStarted.type: self._begin_round,
            events.TextDelta.type: self._add_text,
            events.ReasoningDelta.type: self._add_reasoning,
            events.TextReclassified.type: self._reclassify,
            events.ToolHanded.type: self._hand,
            events.Notice.type: self._note,
            events.Usage.type: self._count,
            events.RunFinished.type: self._finish,
            events.RunFailed.type: self._fail,
        }

    def frames(self, row: EventRow) -> str:
        handler = self._handlers.get(row.type)
        frames = handler(row) if handler else ""
        return f"{frames}{self._own_event(row)}" if row.type in self._shown else frames

    def _chunk(self, delta: str) -> str:
        return f'{self._delta}{delta},"finish_reason":null}}]}}\n\n'

    def _own_event(self, row: EventRow) -> str:
        return f'{self._delta}{{}},"finish_reason":null}}],"dragoman":{row.data}}}\n\n'

    def _start(self, _: EventRow) -> str:
        return self._chunk('{"role":"assistant","content":""}')

    def _begin_round(self, _: EventRow) -> str:
        if "continued" not in self._notices:
            self._text.part()
            self._thinks, self._unsaid = False, 0
        self._notices.clear()
        return ""

    def _add_text(self, row: EventRow) -> str:
        self._thinks = False
        literal = self._text.add_literal(text_literal(row))
        return f'{self._content}{literal}}},"finish_reason":null}}]}}\n\n' if literal else ""

    def _send(self, text: str) -> str:
        return self._chunk(f'{{"content":{json.dumps(text)}}}') if text else ""

    def _add_reasoning(self, row: EventRow) -> str:
        literal = text_literal(row)
        if self._unsaid:
            text = json.loads(literal)
            literal, self._unsaid = json.dumps(text[self._unsaid :]), max(0, self._unsaid - len(text))
        if literal == '""':
            return ""
        if self._thought and not self._thinks:
            literal = f'"\\n\\n{literal[1:]}'
        self._thought = self._thinks = True
        self._text.think()
        # Clients read one of the two names.
        return self._chunk(f'{{"reasoning_content":{literal},"reasoning":{literal}}}')

    def _reclassify(self, row: EventRow) -> str:
        self._unsaid = fields_of(row)["characters"]
        return ""

    def _hand(self, row: EventRow) -> str:
        """A first fragment with the name, and one with all arguments."""
        fields = fields_of(row)
        self._text.part()
        self._thinks = False
        index, name = self._calls, json.dumps(fields["name"])
        arguments = json.dumps(fields.get("written") or arguments_text(fields["arguments"]))
        self._calls += 1
        if self._legacy:  # it has room for one call
            whole = f'{{"function_call":{{"name":{name},"arguments":{arguments}}}}}'
            return self._chunk(whole) if index == 0 else ""
        call_id = json.dumps(fields["call"])
        function = f'{{"name":{name},"arguments":""}}'
        opening = f'{{"index":{index},"id":{call_id},"type":"function","function":{function}}}'
        rest = f'{{"index":{index},"function":{{"arguments":{arguments}}}}}'
        return self._chunk(f'{{"tool_calls":[{opening}]}}') + self._chunk(f'{{"tool_calls":[{rest}]}}')

    def _note(self, row: EventRow) -> str:
        self._notices.add(fields_of(row)["code"])
        return ""

    def _count(self, row: EventRow) -> str:
        self._usage = fields_of(row)
        self._cached += self._usage.get("cached_tokens") or 0
        return ""

    def _finish(self, row: EventRow) -> str:
        self.over = True
        end = fields_of(row)["reason"]
        if stopped := STOPPED.get(end):
            return error_frame(stopped)
        cut, declined = "cut" in self._notices, "refusal" in self._notices
        reason = finish_reason(end, calls=self._calls, cut=cut, declined=declined, legacy=self._legacy)
        last = self._send(self._text.end(calls=self._calls > 0))
        last += f'{self._delta}{{}},"finish_reason":"{reason}"}}]}}\n\n'
        if self._asks_usage:
            last += f'{self._head}[],"usage":{json.dumps(usage_body(self._usage, self._cached))}}}\n\n'
        return last + DONE

    def _fail(self, row: EventRow) -> str:
        self.over = True
        return error_frame(fields_of(row))


def error_frame(failed: Mapping[str, Any]) -> str:
    """The error alone: it ends the stream, and a chunk beside it would hide it from some clients."""
    return f"data: {json.dumps(openai_error(failure_of(failed))[1])}\n\n"
