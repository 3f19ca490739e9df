"""The answer of a run as a whole, for clients that do not stream: what the log says in the end, in its order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from app.core import events
from app.storage.runs import EventRow
from app.transcript.reply import NEVER_MADE
from routes.lanes.event_text import fields_of


class Used(Struct):
    """Tokens of all rounds."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0

    def add(self, fields: Mapping[str, Any]) -> None:
        """Take in a `usage` event."""
        self.prompt += fields["prompt_tokens"]
        self.completion += fields["completion_tokens"]
        self.cached += fields.get("cached_tokens") or 0


class Words(Struct):
    """Text, or (`thought`) reasoning, of one round, in the pieces that it came in.

    A `round` here includes those that go on with an answer that had broken off.
    """

    pieces: list[str]
    thought: bool = False
    round: int = 1

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class HandedCall(Struct):
    """A call of the client's own tool; `written` are its arguments as the model wrote them."""

    call: str
    name: str
    arguments: dict[str, Any]
    written: str | None = None


class OwnCall(Struct):
    """A call that the server has run, or refused (`ok` is False); `result` is None while it is open."""

    call: str
    name: str
    arguments: dict[str, Any]
    result: str | None = None
    ok: bool = False


class WaitingCall(Struct):
    """A call that waits, or has waited, for a person since the event `seq`."""

    call: str
    name: str
    arguments: dict[str, Any]
    seq: int


class DecidedCall(Struct):
    """The decision on a call that has waited; `fields` are those of `approval.resolved`."""

    fields: dict[str, Any]


Item = Words | HandedCall | OwnCall | WaitingCall | DecidedCall


class Answer(Struct):
    """`reason` is that of `run.finished`, `failure` has the fields of `run.failed`; one of them is set at the end.

    `cut` says that the model reached its limit in the last round, `declined` that it refused to answer there.
    `usage` is the last event of that type.
    """

    items: list[Item] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    failure: dict[str, Any] | None = None
    cut: bool = False
    declined: bool = False
    used: Used = field(default_factory=Used)
    round: int = 1
    _continued: bool = False  # the next round goes on in the middle of the text
    _fresh: bool = True  # the next text begins an item: a round has begun, or something stood between

    @property
    def text(self) -> str:
        """The text of all rounds, with an empty line between them."""
        return "\n\n".join(one.text for one in self.items if isinstance(one, Words) and not one.thought)

    @property
    def reasoning(self) -> str:
        return "\n\n".join(one.text for one in self.items if isinstance(one, Words) and one.thought)

    @property
    def handed(self) -> list[HandedCall]:
        return [one for one in self.items if isinstance(one, HandedCall)]

    def add(self, row: EventRow) -> None:
        fields = fields_of(row)
        match row.type:
            case events.TextDelta.type:
                self._add_words(fields["text"], thought=False)
            case events.ReasoningDelta.type:
                self._add_words(fields["text"], thought=True)
            case events.TextReclassified.type:
                self._take_back(fields["characters"])
            case events.RoundStarted.type:
                self._begin_round(fields["round"])
            case events.ToolHanded.type:
                written = fields.get("written")
                self.items.append(HandedCall(fields["call"], fields["name"], fields["arguments"], written))
            case events.ToolStarted.type:
                self.items.append(OwnCall(fields["call"], fields["name"], fields["arguments"]))
            case events.ToolFinished.type:
                self._close_call(fields["call"], fields["text"], ok=fields["ok"])
            case events.ToolRejected.type if fields.get("call") and fields["reason"] not in NEVER_MADE:
                self._reject_call(fields["call"], fields.get("name", ""), fields["reason"])
            case events.ApprovalRequired.type:
                self.items.append(WaitingCall(fields["call"], fields["name"], fields["arguments"], row.seq))
            case events.ApprovalResolved.type:
                self.items.append(DecidedCall(fields))
            case events.Usage.type:
                self.usage = fields
                self.used.add(fields)
            case events.Notice.type:
                self._note(fields["code"])
            case events.RunFinished.type:
                self.reason = fields["reason"]
            case events.RunFailed.type:
                self.failure = fields

    def _begin_round(self, number: int) -> None:
        self._fresh = self._fresh or not self._continued
        self.round = self.round if self._continued else number
        self._continued = self.cut = self.declined = False

    def _note(self, code: str) -> None:
        self.cut = self.cut or code == "cut"
        self.declined = self.declined or code == "refusal"
        self._continued = self._continued or code == "continued"

    def _add_words(self, text: str, *, thought: bool) -> None:
        last = self.items[-1] if self.items and not self._fresh else None
        if isinstance(last, Words) and last.thought is thought:
            last.pieces.append(text)
        else:
            self.items.append(Words([text], thought, self.round))
        self._fresh = False

    def _take_back(self, characters: int) -> None:
        """The end of the text was reasoning, which the log repeats as such."""
        for item in reversed(self.items):
            if isinstance(item, Words) and not item.thought and characters:
                text = item.text
                kept = max(0, len(text) - characters)
                characters -= len(text) - kept
                item.pieces = [text[:kept]]
        self.items = [one for one in self.items if not isinstance(one, Words) or one.text]
        self._fresh = True

    def _close_call(self, call: str, result: str, *, ok: bool) -> bool:
        """Return False if there is no such call."""
        for item in reversed(self.items):
            if isinstance(item, OwnCall) and item.call == call:
                item.result, item.ok = result, ok
                return True
        return False

    def _reject_call(self, call: str, name: str, reason: str) -> None:
        if not self._close_call(call, reason, ok=False) and name:
            self.items.append(OwnCall(call, name, {}, reason))
