"""A run up to one of its events: what is kept of its log and of its messages, and what is changed there.

    event                              what is kept
    before the first reply             the words that began the run, and nothing of its log
    in a reply                         all before it: its request is made again
    behind a reply                     the reply, with the results of its calls that were answered by then
    in a call, at its question         the same: a call without a result is open, and made again

So the history stays valid: each call has one result, or is open. The log keeps nothing of an open call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.core.data_delimiters import new_code
from app.core.events import (
    TERMINAL,
    ApprovalRequired,
    ImageReturned,
    MessageAdded,
    Notice,
    ReasoningDelta,
    RoundStarted,
    RunStarted,
    TextDelta,
    ToolDelta,
    ToolFinished,
    ToolHanded,
    ToolRejected,
    ToolStarted,
    Usage,
)
from app.core.messages import AskedCall, Message, unanswered
from app.models.wire.native_calls import NATIVE
from app.runs.discipline.reminders import CONTINUED
from app.storage.runs import EventRow
from app.transcript.run_totals import logged
from parsing import Arguments
from parsing.fences import fenced_call
from parsing.sink import RAW_LIMIT

BEGUN = frozenset({ToolStarted.type, ToolRejected.type, ToolHanded.type, ApprovalRequired.type})
WRITTEN = BEGUN | {
    TextDelta.type,
    ReasoningDelta.type,
    ToolDelta.type,
    ImageReturned.type,
}  # by which it is known that there is a reply
ANSWERS = (ToolFinished.type, ToolRejected.type)


class Unfit(Exception):
    """The event or the edit does not fit the run. The message says what to do."""


class Edit(Struct, frozen=True):
    """A change of what stands at the event; one of them at the most. The arguments are those of `call`, or the next."""

    message: str | None = None
    arguments: Arguments | None = None
    call: str | None = None
    result: str | None = None


class RunCut(Struct, frozen=True):
    """The `messages` of a run, from its first one, and the `events` of its log, up to one of them.

    `reply` is the last one, if its round goes on, and `asked` says that a request is to be made again.
    """

    messages: Sequence[Message]
    events: Sequence[EventRow] = ()
    reply: Message | None = None
    asked: bool = False

    @property
    def open_calls(self) -> list[AskedCall]:
        return list(unanswered(self.messages))


def cut_run(events: Sequence[EventRow], messages: Sequence[Message], at: int) -> RunCut:
    """Return a run up to the event `at`. Raises Unfit."""
    last = events[-1].seq if events else 0
    if not 1 <= at <= last:
        raise Unfit(f"at: the run has the events 1 to {last}, and not {at}; send one of these numbers")
    replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
    before, number = 0, 0  # replies of the rounds before, the number of this round's first event
    round_events: list[EventRow] = []
    for rows in _rounds(events):
        if rows[0].seq > at:
            break
        before += _count_replies(round_events)
        number, round_events = rows[0].seq, rows
    place = replies[before] if before < len(replies) else len(messages)
    until = _end_of_reply(round_events or next(_rounds(events), []))
    between = [row for row in events if at < row.seq and (until is None or row.seq < until)]
    if not number:
        return RunCut(_without(messages[:place], between))
    if place == len(messages) or until is None or until > at:
        kept = [row for row in events if row.seq <= number]
        return RunCut(_without(messages[:place], between), kept, asked=True)
    kept = [row for row in events if row.seq <= at and row.type not in TERMINAL]
    behind = [*replies, len(messages)][before + 1]
    return _behind_reply(kept, messages[: place + 1], messages[place + 1 : behind], until)


def _without(messages: Sequence[Message], later: Sequence[EventRow]) -> Sequence[Message]:
    """Leave out the last messages of a person that came with later events."""
    words = [fields["text"] for _, fields in logged(later, (MessageAdded.type,))]
    end = len(messages)
    while end > 1 and messages[end - 1].role == "user" and messages[end - 1].text in words:
        words.remove(messages[end - 1].text)
        end -= 1
    return messages[:end]


def _rounds(events: Sequence[EventRow]) -> Iterator[list[EventRow]]:
    starts = [place for place, row in enumerate(events) if row.type == RoundStarted.type]
    for start, end in zip(starts, [*starts[1:], len(events)], strict=True):
        yield list(events[start:end])


def _end_of_reply(rows: Sequence[EventRow]) -> int | None:
    """Return the number of the first event behind the reply of a round, if it has one that was kept."""
    written = False
    for place, row in enumerate(rows):
        ends = row.type == Usage.type or (row.type == Notice.type and json.loads(row.data)["code"] == CONTINUED)
        if ends and (written or _has_calls(rows[place + 1 :])):  # else it is the use of a summary
            return row.seq
        written = written or row.type in WRITTEN
    return None


def _has_calls(follows: Sequence[EventRow]) -> bool:
    """Return True if calls begin, of a reply that was nothing else and came at once."""
    before = takewhile(lambda row: row.type != Usage.type, follows)
    return any(row.type in BEGUN for row in before)


def _count_replies(rows: Sequence[EventRow]) -> int:
    """Return the number of replies of a round; the second is an answer that was asked for once more."""
    until = _end_of_reply(rows)
    used = until or next((row.seq for row in rows if row.type == Usage.type), None)
    again = used is not None and any(row.type == TextDelta.type and row.seq > used for row in rows)
    return (until is not None) + again


def _behind_reply(
    events: Sequence[EventRow], said: Sequence[Message], follows: Sequence[Message], until: int
) -> RunCut:
    answered = {fields.get("call") for kind, fields in logged(events, ANSWERS)}
    results = [one for one in follows if one.role == "tool" and one.call in answered]
    words = [fields["text"] for row in events if row.seq > until for _, fields in logged([row], (MessageAdded.type,))]
    for message in follows:  # those of a person; what else stands there is said again
        if words and message.role == "user" and message.text == words[0]:
            results.append(message)
            del words[0]
    messages = [*said, *results]
    open_calls = [call.id for call in unanswered(messages)]
    kept = [row for row in events if row.seq <= until or not _is_of(row, open_calls)]
    return RunCut(messages, kept, said[-1])


def _is_of(row: EventRow, calls: Sequence[str]) -> bool:
    """Return True for an event of a call that is made again; why it is refused stays, and where it is handed to."""
    if row.type in (ToolRejected.type, ToolHanded.type):
        return False
    call = json.loads(row.data).get("call")
    return call is not None and call.partition("~")[0] in calls


def edited(cut: RunCut, edit: Edit, schemas: dict[str, Any]) -> RunCut:
    """Return the run with a change of what stands at its end. Raises Unfit."""
    if edit.message is not None:
        return _with_message(cut, edit.message)
    if edit.arguments is not None:
        return _with_arguments(cut, edit.arguments, edit.call, schemas)
    return cut if edit.result is None else _with_result(cut, edit.result)


def _with_message(cut: RunCut, text: str) -> RunCut:
    if any(message.role != "user" for message in cut.messages) or not cut.messages:
        raise Unfit("edit.message: the model has replied before this event; send an event before its first reply")
    first, *others = cut.messages
    return replace(cut, messages=[replace(first, text=text, recalled=""), *others])


def _with_arguments(cut: RunCut, arguments: Arguments, named: str | None, schemas: dict[str, Any]) -> RunCut:
    refused = {fields.get("call") for _, fields in logged(cut.events, (ToolRejected.type, ToolHanded.type))}
    call = next((one for one in cut.open_calls if one.id not in refused and named in (None, one.id)), None)
    if call is None and named is not None:
        raise Unfit(f"edit.call: no call {named!r} is open at this event; send an event behind its reply")
    if call is None or cut.reply is None:
        raise Unfit("edit.arguments: no call comes next at this event; send an event behind a reply with calls")
    changed = replace(call, arguments=arguments, sealed=None, raw="")
    text = cut.reply.text
    alone = [one.raw for one in cut.reply.calls].count(call.raw) == 1 and 0 < len(call.raw) < RAW_LIMIT
    if call.dialect != NATIVE and alone:  # else the model reads its own words
        text = text.replace(call.raw, fenced_call(call.name, arguments, schemas.get(call.name, {})), 1)
    calls = tuple(changed if one.id == call.id else one for one in cut.reply.calls)
    reply = replace(cut.reply, text=text, calls=calls)
    return replace(cut, reply=reply, messages=[reply if one is cut.reply else one for one in cut.messages])


def _with_result(cut: RunCut, text: str) -> RunCut:
    last = next((row for row in reversed(cut.events) if row.type == ToolFinished.type), None)
    if last is None:
        raise Unfit("edit.result: no call has finished before this event; send an event behind a tool.finished")
    fields = json.loads(last.data)
    messages = [
        replace(one, text=text, code=new_code(text)) if one.call == fields["call"] else one for one in cut.messages
    ]
    row = replace(last, data=json.dumps(fields | {"text": text}))
    return replace(cut, messages=messages, events=[row if one is last else one for one in cut.events])


def renumbered(cut: RunCut, run: str, started: dict[str, str], approval: str) -> list[EventRow]:
    """Return the log of another run that begins with these events; `started` are fields of its first one."""
    rows = list[EventRow]()
    number = 0
    for row in cut.events:
        number += len(json.loads(row.parts)) if row.parts else 1
        data = row.data
        if row.type == RunStarted.type:
            fields = json.loads(data)
            data = json.dumps(fields | started | {"limits": fields["limits"] | {"approval": approval}})
        rows.append(EventRow(run, number, row.type, data, row.parts))
    return rows
