"""What a run tells its watchers: one frozen dataclass per event, its wire name written out.

The same names and fields are the SSE stream's public surface: `event:` is `type`, `data:` all the fields.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class RunStarted:
    type: ClassVar[str] = "run.started"
    run: str
    session: str
    model: str
    tools: list[str]
    limits: dict[str, float | str]


@dataclass(frozen=True, slots=True)
class RoundStarted:
    type: ClassVar[str] = "round.started"
    round: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    type: ClassVar[str] = "text.delta"
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    type: ClassVar[str] = "reasoning.delta"
    text: str


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """A message that was sent to the run while it was under way is in its history now; with what is attached to it."""

    type: ClassVar[str] = "message.added"
    text: str
    attachments: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class ToolDelta:
    """A piece of a call's arguments, as the model writes them; `name` comes with the first piece of a call."""

    type: ClassVar[str] = "tool.delta"
    call: str
    text: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ToolStarted:
    type: ClassVar[str] = "tool.started"
    call: str
    name: str
    arguments: dict[str, Any]
    dialect: str


@dataclass(frozen=True, slots=True)
class ToolProgress:
    type: ClassVar[str] = "tool.progress"
    call: str
    elapsed_s: float
    tail: list[str]
    lines: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ToolFinished:
    type: ClassVar[str] = "tool.finished"
    call: str
    name: str
    ok: bool
    text: str
    duration_s: float
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class ToolRejected:
    """A call that could not be understood, or may not run."""

    type: ClassVar[str] = "tool.rejected"
    reason: str
    call: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequired:
    """A call that runs only if a person says yes, before `expires_at` (Unix time) if that is not None."""

    type: ClassVar[str] = "approval.required"
    call: str
    name: str
    arguments: dict[str, Any]
    reason: str
    expires_at: float | None


@dataclass(frozen=True, slots=True)
class ApprovalResolved:
    """`decision` is `approved`, `denied`, `expired` or `withdrawn`; `arguments` if the person changed them."""

    type: ClassVar[str] = "approval.resolved"
    call: str
    decision: str
    by: str
    scope: str | None = None
    arguments: dict[str, Any] | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know; the run goes on. `code` is a word such as `retry` or `model_down`.

    With `fallback`, `answered_by` is the model that answers instead of the one that was `wanted`, for that `reason`.
    """

    type: ClassVar[str] = "notice"
    code: str
    message: str
    wanted: str | None = None
    answered_by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ContextTrimmed:
    """What the model is sent no more of the conversation: `dropped` messages, `shortened` ones; tokens of the rest."""

    type: ClassVar[str] = "context.trimmed"
    dropped: int
    shortened: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ContextSummarised:
    """The first `messages` of the session are read as a summary from here on; tokens of both."""

    type: ClassVar[str] = "context.summarised"
    messages: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class DocumentUpdated:
    """A long code block of the answer as a document: `text` is what is new, `done` comes with the last of it."""

    type: ClassVar[str] = "document.updated"
    document: str
    text: str
    language: str | None = None
    done: bool | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one round and of the run so far; `measured` is False when they are estimated.

    `cached_tokens` are those of the round's prompt that the server had read before, if it says so. `cost` is what the
    round has cost, `total_cost` what the run has so far, for models with a price.
    """

    type: ClassVar[str] = "usage"
    prompt_tokens: int
    completion_tokens: int
    total_prompt_tokens: int
    total_completion_tokens: int
    measured: bool
    cached_tokens: int | None = None
    cost: float | None = None
    total_cost: float | None = None


@dataclass(frozen=True, slots=True)
class RunFinished:
    type: ClassVar[str] = "run.finished"
    reason: str
    text: str
    rounds: int
    calls: int
    usage: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunFailed:
    type: ClassVar[str] = "run.failed"
    code: str
    message: str
    retryable: bool


AgentEvent = (
    RunStarted
    | RoundStarted
    | TextDelta
    | ReasoningDelta
    | MessageAdded
    | ToolDelta
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | ToolRejected
    | ApprovalRequired
    | ApprovalResolved
    | Notice
    | ContextTrimmed
    | ContextSummarised
    | DocumentUpdated
    | Usage
    | RunFinished
    | RunFailed
)
Delta = TextDelta | ReasoningDelta | ToolDelta
TERMINAL = frozenset({RunFinished.type, RunFailed.type})


def fields_of(event: AgentEvent) -> dict[str, Any]:
    """The event as the JSON object of its `data:` line; optional fields that are None are left out."""
    named = ((field, getattr(event, field.name)) for field in fields(event))
    told = {field.name: value for field, value in named if value is not None or field.default is MISSING}
    return {"type": event.type} | told


def encode(event: AgentEvent) -> str:
    """The `data:` line's JSON, ASCII only: lone surrogates and U+2028 in a model's words must not break a client."""
    if type(event) is TextDelta:  # nearly every event is one: a template costs a tenth of a dict
        return f'{{"type": "text.delta", "text": {quoted(event.text)}}}'
    return json.dumps(fields_of(event))


@dataclass(frozen=True, slots=True)
class Encoded:
    """An event whose JSON has been made: `data` is its `data:` line."""

    type: str
    data: str


MAX_JOINED = 16_384  # characters: clients bound the size of one event
MAX_DELTA = 65_536  # of one delta as it came: escaped it is below the MiB that clients read


def parted(delta: Delta) -> Sequence[Delta]:
    """The delta, in as many pieces as it takes that none is longer than MAX_DELTA."""
    text = delta.text
    if len(text) <= MAX_DELTA:
        return (delta,)
    first, *rest = (text[at : at + MAX_DELTA] for at in range(0, len(text), MAX_DELTA))
    goes_on = replace(delta, name=None) if isinstance(delta, ToolDelta) else delta
    return [replace(delta, text=first), *(replace(goes_on, text=piece) for piece in rest)]


def joined(events: Sequence[Delta | Encoded]) -> list[Delta | Encoded]:
    """The same events, each row of neighbouring deltas as one delta of at most MAX_JOINED characters (or as it was)."""
    if len(events) == 1:  # as a rule
        return [*events]
    out: list[Delta | Encoded] = []
    row: list[str] = []
    size = 0
    for event in events:
        if isinstance(event, Delta):
            size += len(event.text)
            if out and size <= MAX_JOINED and _continues(out[-1], event):
                row.append(event.text)
                continue
            size = len(event.text)
        _close_row(out, row)
        out.append(event)
    _close_row(out, row)
    return out


def _continues(last: Delta | Encoded, event: Delta | Encoded) -> bool:
    match last, event:
        case (TextDelta(), TextDelta()) | (ReasoningDelta(), ReasoningDelta()):
            return True
        case ToolDelta(call=open_call), ToolDelta(call=call, name=None):
            return open_call == call
    return False


def _close_row(out: list[Delta | Encoded], row: list[str]) -> None:
    last = out[-1] if row else None
    if isinstance(last, Delta):
        out[-1] = replace(last, text=last.text + "".join(row))
        row.clear()
