"""Refusals on their way from the server that has a run to the one that was asked, as the same exceptions."""

from __future__ import annotations

from msgspec import convert, to_builtins

from app.budget.kinds import BudgetSpent
from app.policy.approvals import AlreadyDecided, ApprovalExpired, NoApproval
from app.policy.stored_grants import UnfitArguments
from app.replicas.peers import Refusal
from app.storage.approvals import ApprovalRow
from app.storage.changes import StoreFailed
from app.transcript.inbox import InboxFull
from app.transcript.run_request import ConversationMoved, KeyReused, NotFound, RunOver, SessionBusy, Stopping
from app.workspace.placing import UnsafeName
from tools.base.pause_check import Paused

NOT_HERE = "not_here"  # the server does not have the run: its owner has changed
WITH_WORDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (RunOver, NotFound, UnsafeName, NoApproval, UnfitArguments, KeyReused, Stopping)
}
WITHOUT: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (InboxFull, ApprovalExpired, ConversationMoved, Paused)
}
CROSSING: tuple[type[Exception], ...] = (
    *WITH_WORDS.values(),
    *WITHOUT.values(),
    AlreadyDecided,
    SessionBusy,
    BudgetSpent,
)


def refusal_of(error: Exception) -> Refusal:
    match error:
        case AlreadyDecided():
            fields = {"row": to_builtins(error.row)}
        case SessionBusy():
            fields = {"run": error.run}
        case BudgetSpent():
            fields = {"budget": error.budget, "reset": error.reset}
        case _:
            fields = {}
    return Refusal(type(error).__name__, str(error), fields)


def error_of(refusal: Refusal) -> Exception:
    """The exception that the other server has raised."""
    if refusal.name == AlreadyDecided.__name__:
        return AlreadyDecided(convert(refusal.fields["row"], ApprovalRow))
    if refusal.name == BudgetSpent.__name__:
        return BudgetSpent(refusal.fields["budget"], str(refusal), refusal.fields["reset"])
    if refusal.name == SessionBusy.__name__:
        busy = SessionBusy(refusal.fields["run"])
        busy.args = (str(refusal),)
        return busy
    if kind := WITH_WORDS.get(refusal.name):
        return kind(str(refusal))
    if kind := WITHOUT.get(refusal.name):
        return kind()
    return StoreFailed(f"{refusal} Try again.")
