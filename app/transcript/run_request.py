"""The request for a run, and the errors that refuse one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, convert, field, to_builtins
from msgspec.structs import replace

from app.core.attachments import File
from app.core.data_delimiters import data_in
from app.core.events import Notice
from app.core.messages import Message
from app.core.spans import SourceKind
from app.storage.changes import Change
from app.storage.people.members import bot_of
from app.storage.principals import Principal
from app.storage.runs import OF_APP, HelperRow, RunRow
from app.storage.schedules import ScheduleRow, TriggerRow
from app.transcript.titles import NAMELESS, title_of

MAX_LINE = 16  # runs of one session that wait or are under way
# In the policy of a run:
UNASKED = "unasked"  # the server has begun it by itself, not a person
UNTRUSTED = "untrusted"  # its message holds text of third parties
HELPER = "helper"  # a call of another run waits for it
SENT_BY = "sent_by"  # the model of another session has written its message
TRACEPARENT = "traceparent"  # of the request or the call that began it
TIED = "tied"  # it ends when its client leaves, as all do whose server ends
CARRIES = "carries"  # its request had more than a message, which only the history keeps
LANE = "lane"  # the API of another server that its client speaks
LABELS = "labels"  # of its message
KNOWN = "known"  # its words are to be known again when a client sends them
IMPORTED = "imported"  # its log is made of a transcript of another program: nothing of it has happened here
SPEAKER = "speaker"  # the member of a bot that speaks for the account whose run it is
CALL = "call"  # that is all of it
PROPOSED = "proposed_by"  # the app of this server proposed the message, and the person has confirmed it
TIME_LIMIT_S = 7200.0


class NotFound(Exception):
    """The session or run does not exist, or belongs to another principal."""


class ConversationMoved(Exception):
    """The session of a conversation's key is another one by now than the run was composed for: compose it again."""


class SessionBusy(Exception):
    """The session already has a run under way, and that one is not to be waited for, or by too many."""

    def __init__(self, run: str, waiting: int = 0) -> None:
        full = f"{waiting} runs wait behind it, which is the most." if waiting >= MAX_LINE - 1 else ""
        advice = full or "Wait for it, cancel it, or send when_busy: queue."
        super().__init__(f"The session is busy with run {run}. {advice}")
        self.run = run


class RunOver(Exception):
    """The run has ended; a message for it needs a new one."""


class KeyReused(Exception):
    """The Idempotency-Key came before with another request."""


class Stopping(Exception):
    """The server is stopping and starts no run."""


class IdempotencyKey(Struct, frozen=True):
    """An Idempotency-Key and the SHA-256 of the request that came with it."""

    value: str
    body: str

    def check(self, known: str) -> None:
        """Raise KeyReused if the key came first with another request, of this SHA-256."""
        if known != self.body:
            raise KeyReused("This Idempotency-Key came before with another request. Use a new key for a new request.")


class CallResult(Struct, frozen=True):
    """The client's result of a call that was handed over to it."""

    call: str
    text: str


class DirectCall(Struct, frozen=True):
    """A call that no model makes: a client of our MCP server (`mcp`) or an MCP app (`app`) does."""

    name: str
    arguments: dict[str, Any]
    source: Literal["mcp", "app"]


class ParentRun(Struct, frozen=True):
    """The run whose call delegates another one; `depth` is that of the helper, 1 for those of a person's run."""

    session: str
    run: str
    call: str
    depth: int

    def row(self, helper: RunRow) -> HelperRow:
        return HelperRow(
            session=helper.session,
            run=helper.id,
            parent_session=self.session,
            parent_run=self.run,
            call=self.call,
            depth=self.depth,
            created=helper.created,
        )


def has_mark(row: RunRow, mark: str) -> bool:
    """Return True if the policy of a run has this mark, such as HELPER or TIED."""
    return mark in row.policy and mark in json.loads(row.policy)


def mark_of(row: RunRow | ScheduleRow | TriggerRow, mark: str) -> Any:
    """Return the value of a mark in a policy; None without it."""
    return json.loads(row.policy).get(mark) if mark in row.policy else None


SENDERS: tuple[tuple[str, SourceKind], ...] = (
    (HELPER, "model"),
    (SENT_BY, "session"),
    (UNTRUSTED, "client"),
    (UNASKED, "result"),  # of a job that has ended
)


def sender_of(row: RunRow) -> SourceKind | Literal[""]:
    """Return the kind of source whose words the message of a run has; empty for the person."""
    return next((kind for mark, kind in SENDERS if has_mark(row, mark)), "")


def speaker_of(row: RunRow | ScheduleRow | TriggerRow) -> str:
    """Return the member of a bot that has begun a run, or set a schedule, for its account; empty for the account."""
    return str(mark_of(row, SPEAKER) or "")


def is_open_to(row: RunRow | ScheduleRow | TriggerRow, principal: Principal) -> bool:
    """Return True for what a principal has: where a member speaks for an account, only for what it has begun."""
    return row.principal == principal.name and (not principal.is_linked or speaker_of(row) == principal.member)


def as_sent(row: RunRow, message: Message) -> Message:
    """Return the message of a run; people are shown the words of an app without what delimits them for models."""
    app = mark_of(row, PROPOSED)
    return replace(message, shown=data_in(message.text), app=app) if app else message


def direct_call_of(row: RunRow) -> DirectCall | None:
    """Return the call that is all of a run; None for a run of a model."""
    call = mark_of(row, CALL)
    return convert(call, DirectCall) if call else None


def is_of_app(row: RunRow) -> bool:
    """Return True for a call of an app, which is beside the conversation: it ends with its server."""
    return row.policy.startswith(OF_APP)


def names_behind(row: RunRow) -> set[str]:
    """Return the principal of a run, and the member and the token that speak for it."""
    member = speaker_of(row)
    return {row.principal, member, bot_of(member or row.principal)} - {""}


def trace_of(row: RunRow) -> str:
    """Return the traceparent that a run was begun with, also after a restart; empty without one."""
    return str(mark_of(row, TRACEPARENT) or "")


class RunRequest(Struct, frozen=True):
    """The request for a run. Without a session a new one is created; `policy` is JSON to make its agent from again.

    `asked`: by a person, whose budget may be spent; what the server begins by itself is not refused for that, unless
    it is `budgeted`. `untrusted`: the message holds text of third parties, so that the conversation is tainted;
    `outside`: its text itself is such, by which it is known again elsewhere.
    `notice` is for those who read the run's log. `beside` are changes of the transaction that creates the run.

    `results` answer calls of the session that were handed over; they stand before the message, which may then be empty.
    `history` begins a new session, with the files that it refers to in `imported`. An `unlisted` run keeps neither
    session nor log. `labels` are marks of its message, and those of its history.
    `found_by` are names that the run can be looked up by later, of its principal alone; `known` that its words are to
    be known again (`own_words`).

    `helper_of`: the run that delegates it, `sent_by`: the session of the model that has written the message, which is
    `untrusted` if that had read untrusted text. `disabled`: JSON of the tools that a new session goes without.
    `conversation`: the session is the one of this key of the client's, which a new one gets.
    `subject` is what the title of a new session is made of, where that is not the message.
    `modes` are those of the conversation that a new session goes on from.
    `call` is all that the run does: no model is asked (`app.runs.direct_call`). `app` is the server whose app has
    proposed the message, which is delimited.
    `tied`: the run ends when its client leaves. `run` and `new_session` are the ids of the run and of a new session,
    where another server has chosen them; a `parked` run is stored and left to the servers that may have it.
    """

    message: str
    session: str | None = None
    when_busy: Literal["refuse", "queue"] = "refuse"
    key: IdempotencyKey | None = None
    time_limit_s: float = TIME_LIMIT_S
    policy: str = "{}"
    asked: bool = True
    budgeted: bool = False
    untrusted: bool = False
    outside: bool = False
    beside: Callable[[RunRow], Sequence[Change]] | None = None
    files: Sequence[File] = ()
    notice: Notice | None = None
    results: Sequence[CallResult] = ()
    history: Sequence[Message] = ()
    imported: Sequence[File] = ()
    unlisted: bool = False
    found_by: Sequence[str] = ()
    known: bool = False
    labels: Sequence[str] = ()
    helper_of: ParentRun | None = None
    sent_by: str = ""
    disabled: str = "[]"
    traceparent: str = ""
    tied: bool = False
    run: str = ""
    new_session: str = ""
    parked: bool = False
    conversation: str = ""
    subject: str = ""
    modes: Mapping[str, Any] = field(default_factory=dict)
    call: DirectCall | None = None
    app: str = ""

    @property
    def has_message(self) -> bool:
        return bool(self.message.strip() or self.files)

    @property
    def stored_policy(self) -> str:
        """Return the policy for the run's row, which says whether a person requested the run."""
        marks = {UNASKED: not self.asked, UNTRUSTED: self.untrusted}
        marks |= {HELPER: self.helper_of is not None, SENT_BY: bool(self.sent_by), TIED: self.tied}
        marks |= {CARRIES: bool(self.results or self.history), KNOWN: self.known}
        true: dict[str, Any] = {name: True for name, value in marks.items() if value}
        if self.traceparent:
            true[TRACEPARENT] = self.traceparent
        if self.app:
            true[PROPOSED] = self.app
        if self.labels:
            true[LABELS] = list(self.labels)
        if self.call:
            true[CALL] = to_builtins(self.call)
        head = json.loads(OF_APP + "}") if self.call and self.call.source == "app" else {}
        return json.dumps(head | json.loads(self.policy) | true) if true else self.policy

    @property
    def title(self) -> str:
        """Return the title of a new session: the message, or the names of its files."""
        names = ", ".join(file.attachment.file_name for file in self.files)
        words = next((one.text for one in reversed(self.history) if one.role == "user"), "")
        return title_of(self.subject or self.message) or title_of(names) or title_of(words) or NAMELESS
