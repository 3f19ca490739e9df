"""The audit log of decisions."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from app.storage.changes import Change, ChangeWriter


class AuditRow(Change, frozen=True):
    """One decision: the principal, the action, what was decided, why and by whom.

    `fingerprint` is that of the call's arguments, `facts` JSON of `app.policy.decision_facts`; of other decisions, and
    those of earlier versions, they are empty.
    """

    at: float
    principal: str
    action: str
    decision: str
    why: str
    by: str
    run: str | None = None
    call: str | None = None
    fingerprint: str | None = None
    facts: str = ""


class AuditFilter(Struct, frozen=True):
    """The rows that a reader wants; an empty field takes all. `action` is the beginning of one."""

    principal: str = ""
    action: str = ""
    decision: str = ""


class AuditStore(ChangeWriter, Protocol):
    async def audit(self, before: int, limit: int, only: AuditFilter | None = None) -> list[tuple[int, AuditRow]]:
        """Rows with a number below `before`, newest first, each with its number."""

    async def decided_sessions(self, since: float, after: str, limit: int) -> list[str]:
        """Ids of sessions behind `after`, in their order, whose runs had not ended before that time."""

    async def decided_calls(self, session: str, since: float, principal: str) -> list[AuditRow]:
        """Decisions on the calls of a session, oldest first; an empty principal is any."""

    async def decided_elsewhere(self, since: float, principal: str) -> int:
        """The number of decisions on calls of runs that are not kept."""

    async def forget_audit(self, before: float) -> None:
        """Delete rows older than that time."""
