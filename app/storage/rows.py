"""What the store keeps, a frozen dataclass per kind of row or change."""

from __future__ import annotations

from dataclasses import dataclass

from app.storage.approval_rows import ApprovalChange
from app.storage.endpoint_rows import EndpointChange
from app.storage.file_rows import FileChange
from app.storage.mcp_rows import McpPinGone, McpPinRow, McpServerGone, McpServerRow
from app.storage.usage_rows import UsageChange


@dataclass(frozen=True, slots=True)
class SessionRow:
    """`created` is a Unix time in seconds, here and below."""

    id: str
    principal: str
    created: float
    title: str
    disabled: str = "[]"  # JSON: patterns of tools that this session goes without
    updated: float = 0.0  # when a run of it began or ended; the store sees to it


@dataclass(frozen=True, slots=True)
class RunRow:
    """`state` is `queued`, `running` or, once it has ended, the reason or error code of its terminal event.

    `policy`: JSON of the mode of approval and the tools that the run was begun with.
    """

    id: str
    session: str
    principal: str
    model: str
    state: str
    created: float
    ended: float | None = None
    policy: str = "{}"


@dataclass(frozen=True, slots=True)
class RunBegan:
    """A queued run's turn has come."""

    id: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    id: str
    state: str
    ended: float


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event of a run's log; `seq` counts from 1, `data` is the JSON of its `data:` line.

    `parts`: several deltas joined after the run had ended; the JSON of a list, how many characters of `text` each of
    them had, the last one's number being `seq`. A reader who has seen some of them gets the rest of the text.
    """

    run: str
    seq: int
    type: str
    data: str
    parts: str | None = None


@dataclass(frozen=True, slots=True)
class MessageRow:
    """`message` is the JSON of `app.core.messages.dump`."""

    session: str
    position: int
    run: str
    message: str


@dataclass(frozen=True, slots=True)
class TokenRow:
    """An access token: only its SHA-256 is kept. `tools`, `disabled`, `budget`: JSON of the principal's fields."""

    sha256: str
    name: str
    role: str
    created: float
    tools: str = "[]"
    disabled: str = "[]"
    budget: str = "{}"
    expires: float | None = None
    revoked: float | None = None


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """How many tokens there are: ever made, revoked, in use. While none of them changes, nor does who may come in."""

    all: int
    revoked: int
    in_use: int


@dataclass(frozen=True, slots=True)
class TokenRevoked:
    sha256: str
    revoked: float


@dataclass(frozen=True, slots=True)
class SessionTitle:
    id: str
    title: str


@dataclass(frozen=True, slots=True)
class SessionTools:
    """The patterns of the tools that a session goes without, as JSON."""

    id: str
    disabled: str


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One decision: who wanted what, what was decided, by whom and why. `fingerprint`: of the call's arguments."""

    at: float
    principal: str
    action: str
    decision: str
    why: str
    by: str
    run: str | None = None
    call: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class InboxRow:
    """A message for a run that is not yet in the history; `position` counts from 0, `attachments` is JSON."""

    run: str
    position: int
    text: str
    attachments: str = "[]"


@dataclass(frozen=True, slots=True)
class InboxTaken:
    """All messages for a run are in the history now."""

    run: str


@dataclass(frozen=True, slots=True)
class KeyRow:
    """An Idempotency-Key: the run it began, and the SHA-256 of the request it came with."""

    principal: str
    key: str
    body: str
    run: str
    created: float


@dataclass(frozen=True, slots=True)
class StateRow:
    """A named state of the whole server; a later one replaces it."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """What stands for the first `upto` messages of a session when the model reads them; they stay as they are.

    `text` is what the model is told, `before` and `after` are tokens.
    """

    session: str
    upto: int
    run: str
    text: str
    before: int
    after: int
    created: float


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A tool's result of which the model was told a part only."""

    session: str
    run: str
    call: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A piece of a kept result; `characters` counts the whole."""

    name: str
    text: str
    characters: int


Change = (
    SessionRow
    | SessionTitle
    | SessionTools
    | RunRow
    | RunBegan
    | RunEnded
    | EventRow
    | MessageRow
    | TokenRow
    | TokenRevoked
    | AuditRow
    | InboxRow
    | InboxTaken
    | KeyRow
    | StateRow
    | McpServerRow
    | McpServerGone
    | McpPinRow
    | McpPinGone
    | SummaryRow
    | ResultRow
    | ApprovalChange
    | EndpointChange
    | FileChange
    | UsageChange
)
