"""The common half of encoders whose texts, thoughts and calls are opened and closed: AG-UI and the AI SDK's UI stream.

A stream ends where a call needs a person's decision, which comes with the next request. That request's stream is of the
same run and begins where the last one ended: what is in front of that is encoded once more, so that parts keep their
numbers and no call is shown twice, and dropped.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from app.core import events
from app.core.document_events import DocumentChanged, DocumentFinished, DocumentSuggested
from app.storage.runs import EventRow
from routes.lanes.errors import STOPPED
from routes.lanes.event_text import fields_of, text_literal
from routes.lanes.lane import Turn

Fields = dict[str, Any]
NOTHING = '""'
ENDED_BEFORE = "This call had not ended when the run did."


def call_of(approval: str) -> str:
    """The call that an approval is about: `c1` of `c1~2`, which asks again because the target of `c1` has changed."""
    return approval.partition("~")[0]


class PartEncoder(ABC):
    """`begin`, `open_part` and the other abstract methods write the blocks of one wire format."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.over = False
        self.unanswered: dict[str, Fields] = {}  # the server's own calls, as they were shown
        self._answered: set[str] = set()
        self._running: set[str] = set()
        self._begun = False
        self._seq = 0  # of the event, but not of each token
        self._blocks: list[str] = []
        self._open = ""  # the type of event that goes on with the open part
        self._part = ""  # its id
        self._before_text = ""  # in the block of a delta of the open part
        self._parts = 0
        self._held = self._held_type = ""  # white space that a part may begin with, once there is more
        self._repeats = False  # reasoning that was sent as text comes again
        self._continues = False  # the next round goes on in the middle of a part

    def frames(self, row: EventRow) -> str:
        if not self._begun and row.seq > self.turn.after:
            self._begin()
        if row.type == self._open:  # a token, most of the time
            text = text_literal(row)
            return f"{self._before_text}{text}}}\n\n" if self._begun and text != NOTHING else ""
        if self.over or (self._repeats and row.type == events.ReasoningDelta.type):
            return ""
        self._seq, self._repeats = row.seq, row.type == events.TextReclassified.type
        if row.type in (events.TextDelta.type, events.ReasoningDelta.type):
            self._open_with(row)
        elif handler := self.handlers.get(row.type):
            handler(self, fields_of(row))
        if not self._begun:
            return ""
        blocks, self._blocks = self._blocks, []
        return "".join(blocks)

    def send(self, **fields: Any) -> None:
        self._blocks.append(f"data: {json.dumps(fields, separators=(',', ':'))}\n\n")

    def send_text(self, text: str) -> None:
        self._blocks.append(text)

    def new_id(self) -> str:
        self._parts += 1
        return str(self._parts)

    def close_part(self) -> None:
        self._held = ""
        if self._open:
            self.end_part(self._open, self._part)
            self._open = self._before_text = ""

    def _begin(self) -> None:
        self._begun = True
        self._open = ""
        self._blocks.clear()
        self.begin()

    def _open_with(self, row: EventRow) -> None:
        """Open a part, with the first text that is more than white space: calls in text leave line ends around them."""
        held = self._held if row.type == self._held_type else ""
        text = (held + fields_of(row)["text"]).lstrip("\r\n")
        self._held, self._held_type = text, row.type
        if not text.strip():
            return
        self.close_part()
        self._held = ""
        self._open, self._part = row.type, self.new_id()
        self._before_text = self.open_part(row.type, self._part)
        self._blocks.append(f"{self._before_text}{json.dumps(text)}}}\n\n")

    def _start_call(self, fields: Fields) -> None:
        self._show(fields["call"], fields)
        self._running.add(fields["call"])

    def _show(self, call: str, fields: Fields) -> None:
        """Show a call of a tool of the server, once; again only if a person has changed its arguments."""
        if call in self._answered:
            return
        known = self.unanswered.get(call)
        self.unanswered[call] = fields
        if known is None:
            self.close_part()
            self.show_call(call, fields["name"], fields["arguments"])
        elif known["arguments"] != fields["arguments"]:
            self.change_call(call, fields["name"], fields["arguments"])

    def _hand(self, fields: Fields) -> None:
        self.close_part()
        self.hand_call(fields["call"], fields["name"], fields["arguments"])

    def _finish_call(self, fields: Fields) -> None:
        call = fields["call"]
        if call in self._answered:
            return
        if call not in self.unanswered:
            self._show(call, {"name": fields["name"], "arguments": {}})
        self._answer(call)
        self.answer_call(call, fields["text"], ok=fields["ok"])

    def _reject(self, fields: Fields) -> None:
        call = fields.get("call")
        name = fields.get("name") or self.unanswered.get(call or "", {}).get("name")
        if call is None or name is None or call in self._answered:
            self.note(events.ToolRejected.type, fields)
            return
        shown = call in self.unanswered
        self._answer(call)
        self.reject_call(call, name, fields["reason"], shown=shown)

    def _answer(self, call: str) -> None:
        self.close_part()
        self.unanswered.pop(call, None)
        self._running.discard(call)
        self._answered.add(call)

    def _progress(self, fields: Fields) -> None:
        if fields["call"] in self.unanswered:
            self.show_progress(fields)

    def _ask(self, fields: Fields) -> None:
        """End the stream, if it is not an earlier one that ended here, or its client is shown no questions."""
        self.close_part()
        if asks_for_input := bool(self._running):  # a question of a call that runs; its id is its own
            call = fields["call"]
        else:
            call = call_of(fields["call"])
            self._show(call, fields)
        if not self.turn.request.asks or self._seq <= (self.turn.decided or 0):
            return
        self.ask(call, fields, asks_for_input=asks_for_input)
        self.over = self._begun

    def _finish(self, fields: Fields) -> None:
        if stopped := STOPPED.get(fields["reason"]):
            self._fail(dict(stopped))
            return
        self._end_calls()
        self.finish(fields)
        self.over = True

    def _fail(self, fields: Fields) -> None:
        self._end_calls()
        self.fail(fields)
        self.over = True

    def _end_calls(self) -> None:
        """Clients take a call without a result for one that they are to run."""
        self.close_part()
        for call in list(self.unanswered):
            self._answer(call)
            self.answer_call(call, ENDED_BEFORE, ok=False)

    def _start_round(self, _: Fields) -> None:
        continues, self._continues = self._continues, False
        if not continues:
            self.close_part()
        self.start_round(continues=continues)

    def _notice(self, fields: Fields) -> None:
        self._continues = self._continues or fields["code"] == "continued"
        self.note(events.Notice.type, fields)

    def _resolve(self, fields: Fields) -> None:
        """Say who has decided: perhaps another than this stream's client, whose verdict came too late."""
        if fields.get("door"):
            self.note(events.ApprovalResolved.type, fields)
        self.resolve(fields)

    def _note_context(self, fields: Fields) -> None:
        self.note(fields["type"], fields)

    def _add_message(self, fields: Fields) -> None:
        self.close_part()
        self.add_message(fields["text"])

    handlers: ClassVar[dict[str, Callable[[PartEncoder, Fields], None]]] = {
        events.RunStarted.type: lambda self, fields: self.start_run(fields),
        events.RoundStarted.type: _start_round,
        events.TextReclassified.type: lambda self, _: self.close_part(),  # the answer begins in a part of its own
        events.MessageAdded.type: _add_message,
        events.ToolStarted.type: _start_call,
        events.ToolProgress.type: _progress,
        events.ToolFinished.type: _finish_call,
        events.ToolRejected.type: _reject,
        events.ToolHanded.type: _hand,
        events.ApprovalRequired.type: _ask,
        events.ApprovalResolved.type: _resolve,
        events.Notice.type: _notice,
        events.ContextTrimmed.type: _note_context,
        events.ContextSummarised.type: _note_context,
        events.FileChanged.type: _note_context,
        events.ImageReturned.type: _note_context,
        events.PlanUpdated.type: _note_context,
        DocumentFinished.type: _note_context,
        DocumentChanged.type: _note_context,
        DocumentSuggested.type: _note_context,
        events.Usage.type: lambda self, fields: self.add_usage(fields),
        events.RunFinished.type: _finish,
        events.RunFailed.type: _fail,
    }

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def start_run(self, fields: Fields) -> None: ...

    @abstractmethod
    def start_round(self, *, continues: bool) -> None:
        """With `continues` the text goes on in the middle, in the part that may be open."""

    @abstractmethod
    def open_part(self, kind: str, part: str) -> str:
        """Write the blocks in front of the first delta; return a delta's block up to the text."""

    @abstractmethod
    def end_part(self, kind: str, part: str) -> None: ...

    @abstractmethod
    def add_message(self, text: str) -> None: ...

    @abstractmethod
    def show_call(self, call: str, name: str, arguments: Fields) -> None: ...

    @abstractmethod
    def change_call(self, call: str, name: str, arguments: Fields) -> None: ...

    @abstractmethod
    def hand_call(self, call: str, name: str, arguments: Fields) -> None: ...

    @abstractmethod
    def show_progress(self, fields: Fields) -> None: ...

    @abstractmethod
    def answer_call(self, call: str, text: str, *, ok: bool) -> None: ...

    @abstractmethod
    def reject_call(self, call: str, name: str, reason: str, *, shown: bool) -> None: ...

    @abstractmethod
    def ask(self, call: str, fields: Fields, *, asks_for_input: bool) -> None:
        """Write the end of a stream that goes on with the decision."""

    @abstractmethod
    def resolve(self, fields: Fields) -> None: ...

    @abstractmethod
    def note(self, name: str, fields: Fields) -> None: ...

    @abstractmethod
    def add_usage(self, fields: Fields) -> None: ...

    @abstractmethod
    def finish(self, fields: Fields) -> None: ...

    @abstractmethod
    def fail(self, fields: Fields) -> None: ...
