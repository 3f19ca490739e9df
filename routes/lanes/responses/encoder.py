"""A run's log as the events of a streamed response.

Items stand in the order of the log. Words (a message, or reasoning) are open until something else begins; a call of
ours is open from its start to its result, beside others. Every event's `sequence_number` is made from the number of the
log's event and its place among the events made of that one, so that it is the same in every replay: deltas that have
been joined since the run ended are taken apart again. Readers who continue from a number get exactly the rest, and so
do those SDKs that read from the beginning and leave out what they have seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.core import events
from app.storage.runs import EventRow
from app.transcript.reply import NEVER_MADE
from routes.lanes.answer import Answer, OwnCall, Used
from routes.lanes.event_text import fields_of, joined_literals, text_literal
from routes.lanes.lane import Turn
from routes.lanes.responses import ids, items
from routes.lanes.responses.response import Outcome, ResponseHead, failed, finished, response_json, usage_fields

STEP = 16  # sequence numbers for each event of the log; none becomes more events than that


class Form(Struct, frozen=True):
    """The events of words: the part that they are put into, the deltas, and the item."""

    id_kind: str
    deltas: str  # the type of the deltas' events, without its last word
    part: str  # the same for those of the part
    index: str  # the name of the part's number
    new_part: Callable[[str], items.Item]
    in_delta: str = ""


FORMS = {
    events.TextDelta.type: Form(
        id_kind=ids.MESSAGE,
        deltas="output_text",
        part="content_part",
        index="content_index",
        new_part=items.text_part,
        in_delta=', "logprobs": []',
    ),
    events.ReasoningDelta.type: Form(
        ids.REASONING, "reasoning_summary_text", "reasoning_summary_part", "summary_index", items.summary_part
    ),
}


class ResponseEncoder:
    """One stream of one response. `cursor` is the last sequence number that the client has."""

    def __init__(self, turn: Turn, cursor: int = -1) -> None:
        self.over = False
        self._turn = turn
        self._asks = turn.request.asks
        self._head = ResponseHead.of(turn)
        self._fields = json.dumps(self._head.fields)
        self._cursor = cursor
        self._begun = False
        self._frames = list[str]()
        self._number = 0  # of the next event
        self._output = list[str]()  # the JSON of each item as far as it has come
        self._own = dict[str, tuple[int, OwnCall]]()  # by call: our own that run, with their index
        self._open = ""  # the type of the deltas that continue the open item
        self._literals = list[str]()  # its text
        self._held = list[str]()  # white space that an item may begin with, once there is more
        self._held_type = ""
        self._template = ""  # of its next delta
        self._repeated = 0  # characters of reasoning to come that have been sent as text
        self._used = Used()
        self._notices = set[str]()  # their codes, of this round
        self._compaction = Answer() if self._head.compaction else None

    @property
    def output(self) -> list[items.Item]:
        """The items as far as they have come."""
        return [json.loads(item) for item in self._output]

    def frames(self, row: EventRow) -> str:
        if row.type == self._open and row.parts is None and not self._repeated:  # a token, most of the time
            literal = text_literal(row)
            self._literals.append(literal)
            number = row.seq * STEP
            return f'{self._template}{number}, "delta": {literal}}}\n\n' if number > self._cursor else ""
        if self.over:
            return ""
        if row.seq <= self._turn.after:  # an event of the response before this one
            return ""
        self._frames.clear()
        for one in taken_apart(row):
            self._number = one.seq * STEP
            self._begin()
            if self._compaction:
                self._collect(one, self._compaction)
            elif encode := EVENTS.get(one.type):
                encode(self, one)
        return "".join(self._frames)

    def _add(self, kind: str, fields: str) -> None:
        """One event; `fields` is JSON without braces."""
        if self._number > self._cursor:
            name = f"response.{kind}"
            head = f'event: {name}\ndata: {{"type": "{name}", "sequence_number": {self._number}, '
            self._frames.append(f"{head}{fields}}}\n\n")
        self._number += 1

    def _add_response(self, kind: str, outcome: Outcome, usage: Mapping[str, Any] | None = None) -> None:
        self._add(kind, f'"response": {response_json(self._fields, outcome, self._output, usage)}')

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            for kind in ("created", "in_progress"):
                self._add_response(kind, Outcome())

    # words

    def _words(self, row: EventRow) -> None:
        literal = text_literal(row)
        if self._repeated and row.type == events.ReasoningDelta.type:
            text = json.loads(literal)
            literal = json.dumps(text[self._repeated :])
            self._repeated = max(0, self._repeated - len(text))
        else:
            self._repeated = 0
        if len(literal) > len('""'):
            self._add_words(row.type, literal)

    def _add_words(self, kind: str, literal: str) -> None:
        if kind != self._open:
            self._close_words()
            if kind != self._held_type:
                self._held, self._held_type = [], kind
            self._held.append(literal)
            literal = joined_literals(self._held)
            text = json.loads(literal)
            if not text.strip():
                return  # models write empty lines before calls, and thoughts that are empty
            if kind == events.TextDelta.type:
                literal = json.dumps(items.without_gap(text, len(self._output)))
            self._open_words(kind)
        self._literals.append(literal)
        if self._number > self._cursor:
            self._frames.append(f'{self._template}{self._number}, "delta": {literal}}}\n\n')
        self._number += 1

    def _open_words(self, kind: str) -> None:
        form, at = FORMS[kind], len(self._output)
        item = self._head.item(form.id_kind, at)
        found = items.message(item, status="in_progress") if kind == events.TextDelta.type else items.reasoning(item)
        self._open, self._held_type = kind, ""
        self._add_item(found)
        self._add(f"{form.part}.added", f'{self._item_fields(form)}, "part": {json.dumps(form.new_part(""))}')
        name = f"response.{form.deltas}.delta"
        fields = f"{self._item_fields(form)}{form.in_delta}"
        self._template = f'event: {name}\ndata: {{"type": "{name}", {fields}, "sequence_number": '

    def _item_fields(self, form: Form) -> str:
        """The fields that lead to the open item's part, as JSON without braces."""
        at = len(self._output) - 1
        return f'"item_id": "{self._head.item(form.id_kind, at)}", "output_index": {at}, "{form.index}": 0'

    def _close_words(self) -> None:
        kind, self._open = self._open, ""
        if not kind:
            return
        form, at, literal = FORMS[kind], len(self._output) - 1, joined_literals(self._literals)
        self._literals.clear()
        text, item = json.loads(literal), self._head.item(form.id_kind, at)
        lead = self._item_fields(form)
        self._add(f"{form.deltas}.done", f'{lead}{form.in_delta}, "text": {literal}')
        self._add(f"{form.part}.done", f'{lead}, "part": {json.dumps(form.new_part(text))}')
        is_text = kind == events.TextDelta.type
        self._end_item(at, items.message(item, text) if is_text else items.reasoning(item, text, seal=self._head.seal))

    def _begin_round(self, _: EventRow) -> None:
        if "continued" not in self._notices:  # in the middle of the text
            self._end_words()
        self._notices.clear()

    def _end_words(self) -> None:
        """Close the open words; an item of its own follows."""
        self._close_words()
        self._held_type = ""

    # items

    def _add_item(self, item: items.Item) -> int:
        at = len(self._output)
        self._output.append(json.dumps(item))
        self._add("output_item.added", f'"output_index": {at}, "item": {self._output[at]}')
        return at

    def _end_item(self, at: int, item: items.Item) -> None:
        self._output[at] = json.dumps(item)
        self._add("output_item.done", f'"output_index": {at}, "item": {self._output[at]}')

    def _hand_over(self, row: EventRow) -> None:
        self._end_words()
        fields, names = fields_of(row), self._head.names
        call = items.ClientCall(fields["call"], fields["name"], fields["arguments"], names, fields.get("written"))
        item = self._head.item(call.id_kind, len(self._output))
        at, text = self._add_item(call.item(item)), json.dumps(call.text)
        lead = f'"item_id": "{item}", "output_index": {at}'
        self._add(f"{call.event}.delta", f'{lead}, "delta": {text}')
        done = call.item(item, call.text)
        named = "" if call.is_custom else f', "name": {json.dumps(done["name"])}'
        self._add(f"{call.event}.done", f'{lead}, "{call.text_field}": {text}{named}')
        self._end_item(at, done)

    def _start_own(self, row: EventRow) -> None:
        fields = fields_of(row)
        self._add_own(OwnCall(fields["call"], fields["name"], fields["arguments"]))

    def _add_own(self, own: OwnCall) -> None:
        self._end_words()
        at = self._add_item(self._head.own_call(own, len(self._output), "in_progress", added=True))
        item = self._head.own_call(own, at, "incomplete")
        self._output[at] = json.dumps(item)  # unless its result comes
        lead, arguments = f'"item_id": "{item["id"]}", "output_index": {at}', json.dumps(item["arguments"])
        self._add("mcp_call.in_progress", lead)
        self._add("mcp_call_arguments.delta", f'{lead}, "delta": {arguments}')
        self._add("mcp_call_arguments.done", f'{lead}, "arguments": {arguments}')
        self._own[own.call] = at, own

    def _end_own(self, row: EventRow) -> None:
        fields = fields_of(row)
        if fields["call"] in self._own:
            self._close_own(fields["call"], fields["text"], ok=fields["ok"])

    def _close_own(self, call: str, result: str, *, ok: bool) -> None:
        at, own = self._own.pop(call)
        own.result, own.ok = result, ok
        item = self._head.own_call(own, at)
        self._add(f"mcp_call.{item['status']}", f'"item_id": "{item["id"]}", "output_index": {at}')
        self._end_item(at, item)

    def _reject(self, row: EventRow) -> None:
        """A call of ours that failed, or never ran. The client's own are not ours to report."""
        fields = fields_of(row)
        call, name = fields.get("call"), fields.get("name")
        if call is None or fields["reason"] in NEVER_MADE:
            return
        if call not in self._own:
            if not name or name in self._head.names.all:
                return
            self._add_own(OwnCall(call, name, {}))
        self._close_own(call, fields["reason"], ok=False)

    def _ask(self, row: EventRow) -> None:
        """A call waits for a person: the response ends here, the next one goes on with the decision."""
        if not self._asks:
            return
        self._end_words()
        fields = fields_of(row)
        approval = ids.approval_id(self._turn.run, row.seq, fields["call"])
        item = items.approval_request(approval, fields["name"], fields["arguments"])
        self._end_item(self._add_item(item), item)
        self._end(Outcome("completed"))

    def _decided(self, row: EventRow) -> None:
        """Say that the call which this response goes on with was decided elsewhere."""
        fields = fields_of(row)
        if item := self._head.other_decision(fields, len(self._output)):
            self._end_item(self._add_item(item), item)

    # the rest

    def _collect(self, row: EventRow, notes: Answer) -> None:
        """Keep the notes of a compaction until they are whole: clients get one item, and no words."""
        notes.add(row)
        if row.type in events.TERMINAL:
            self._used = notes.used
            outcome, output = self._head.compacted(notes)
            for item in output:
                self._end_item(self._add_item(item), item)
            self._end(outcome)

    def _skip_repeated(self, row: EventRow) -> None:
        """Leave out the reasoning that repeats what was shown as text, which cannot be taken back here."""
        self._repeated = fields_of(row)["characters"]

    def _count(self, row: EventRow) -> None:
        self._used.add(fields_of(row))

    def _notice(self, row: EventRow) -> None:
        self._notices.add(fields_of(row)["code"])

    def _finish(self, row: EventRow) -> None:
        reason, notices = fields_of(row)["reason"], self._notices
        self._end(finished(reason, cut="cut" in notices, declined="refusal" in notices))

    def _fail(self, row: EventRow) -> None:
        self._end(failed(fields_of(row)))

    def _end(self, outcome: Outcome) -> None:
        self._end_words()
        self.over = True
        self._add_response(outcome.event, outcome, usage_fields(self._used))


def taken_apart(row: EventRow) -> Iterator[EventRow]:
    """The row, or the rows that words were joined from."""
    if row.parts is None or row.type not in FORMS:
        yield row
        return
    lengths: list[int] = json.loads(row.parts)
    text, at = fields_of(row)["text"], 0
    for seq, length in enumerate(lengths, row.seq - len(lengths) + 1):
        data = f'{{"type": "{row.type}", "text": {json.dumps(text[at : at + length])}}}'
        yield replace(row, seq=seq, data=data, parts=None)
        at += length


EVENTS: Mapping[str, Callable[[ResponseEncoder, EventRow], None]] = {
    events.RoundStarted.type: ResponseEncoder._begin_round,
    events.TextDelta.type: ResponseEncoder._words,
    events.ReasoningDelta.type: ResponseEncoder._words,
    events.TextReclassified.type: ResponseEncoder._skip_repeated,
    events.ToolHanded.type: ResponseEncoder._hand_over,
    events.ToolStarted.type: ResponseEncoder._start_own,
    events.ToolFinished.type: ResponseEncoder._end_own,
    events.ToolRejected.type: ResponseEncoder._reject,
    events.ApprovalRequired.type: ResponseEncoder._ask,
    events.ApprovalResolved.type: ResponseEncoder._decided,
    events.Usage.type: ResponseEncoder._count,
    events.Notice.type: ResponseEncoder._notice,
    events.RunFinished.type: ResponseEncoder._finish,
    events.RunFailed.type: ResponseEncoder._fail,
}
