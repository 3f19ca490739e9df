"""The point at which a run has lost its server."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, field

from app.core.events import Notice
from app.core.messages import AskedCall, Message
from app.runs.tool_executor import Unanswered
from app.storage.approvals import ApprovalRow
from app.storage.runs import InboxRow
from app.transcript.run_request import RunRequest
from app.transcript.run_totals import RunTotals
from tools.base.access import RemoteTask

RESUMED = "resumed"  # the code of a notice
WAITED = "The server was restarted; the run goes on where it waited."
CRASHED = "The server ended during this run; the run goes on."
STOPPED_BEFORE = "The server was stopped and started again; the run goes on."
SUSPENDED = "suspended"  # why a run is stopped that goes on when the server is back, and the code of a notice
ABANDONED = "abandoned"  # why a run is stopped that another server has already: nothing of it is written here
RETURN = "The server is stopping. The run goes on when it is back: reconnect with Last-Event-ID."
BROKE_OFF = "The server ended meanwhile."


class LeftOff(Struct, frozen=True):
    """The state of a run: messages that wait for it (`inbox`), its log's last number, the time that it still has.

    `turn`: its request, if that is not in the history yet; then nothing has been done. Otherwise `begins` is where the
    run begins in the history, and `totals` is what it has used; `before` was that when its last round began.

    `reply` is the last reply, if the history has it, and `calls` are those in it without a result. Calls of `unknown`
    had been started and may have had an effect; those of `started` only read, and may be made again, or are `tasks`.
    `half`: what the log shows of a reply that the history does not have, of so many `characters`, and `dropped` the
    calls that were being written in it, with their names. `asked` says that a request had begun.
    """

    inbox: Sequence[InboxRow] = ()
    last_seq: int = 0
    left_s: float = 0.0
    words: str = CRASHED
    turn: RunRequest | None = None
    is_announced: bool = True  # its first event is in the log
    begins: int = 0
    totals: RunTotals = field(default_factory=RunTotals)
    before: RunTotals = field(default_factory=RunTotals)
    reply: Message | None = None
    calls: Unanswered = field(default_factory=Unanswered)
    unknown: Sequence[AskedCall] = ()
    started: Collection[str] = ()
    tasks: Mapping[str, RemoteTask] = field(default_factory=dict)
    handed: Collection[str] = ()
    asked: bool = False
    half: str = ""
    characters: int = 0
    dropped: Mapping[str, str | None] = field(default_factory=dict)
    drafts: Mapping[str, str] = field(default_factory=dict)  # call -> document
    questions: Sequence[ApprovalRow] = ()  # open ones of calls that are over
    notice: Notice | None = None  # in place of the one with the `words`
