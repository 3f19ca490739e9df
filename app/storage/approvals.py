"""Approvals, which are calls that wait for a decision, and grants, which are decisions for a whole session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.storage.changes import Change
from app.storage.people.permissions import PermissionStore


class ApprovalRow(Change, frozen=True):
    """A call that waits for a decision, or the decision.

    `state` is `pending`, `approved`, `denied`, `expired` or `withdrawn` (its run has ended, or the call is forbidden
    by now). `arguments` is JSON, `fingerprint` identifies the call. `edited`: JSON of the arguments that replace the
    model's, `note`: a comment on the decision, `door`: the way by which it came (a key of `app.policy.doors.DOORS`).
    `expires` is None for an approval without a time limit. `origins`: JSON of the spans of the arguments, `proposals`:
    of the standing permissions that the person can give with it. `secrets` are those that the call was shown with.
    """

    run: str
    call: str
    session: str
    principal: str
    name: str
    arguments: str
    fingerprint: str
    reason: str
    created: float
    expires: float | None
    state: str = "pending"
    decided: float | None = None
    by: str | None = None
    scope: str | None = None
    edited: str | None = None
    note: str | None = None
    origins: str = "[]"
    door: str | None = None
    proposals: str = "[]"
    secrets: str = ""


class ApprovalDecided(Change, frozen=True):
    """A decision. It takes effect only if the approval is still pending."""

    run: str
    call: str
    state: str
    decided: float
    by: str
    scope: str | None = None
    edited: str | None = None
    note: str | None = None
    door: str | None = None


class DecisionLink(Change, frozen=True):
    """A link that decides the approval of one call, once, until `expires`, as long as its `target` has such links.

    `sha256` is the hash of its token.
    """

    sha256: str
    run: str
    call: str
    session: str
    target: str
    fingerprint: str
    expires: float


class DecisionLinksExpired(Change, frozen=True):
    """All links that were over at this time are deleted."""

    expires: float


class GrantRow(Change, frozen=True):
    """Calls of `tool` that need no further approval in a session, until `expires`.

    Those with this `fingerprint`, those whose arguments match `pattern` (JSON, argument -> pattern), or, of all
    commands, those that need no network but `hosts` (a JSON list). `arguments`: JSON of the call that was approved,
    `secrets` those that it was shown with.
    """

    id: str
    session: str
    principal: str
    tool: str
    created: float
    by: str
    fingerprint: str | None = None
    pattern: str | None = None
    hosts: str | None = None
    arguments: str | None = None
    expires: float | None = None
    tainted: bool = False
    secrets: str = ""


class GrantRevoked(Change, frozen=True):
    id: str


class ApprovalStore(PermissionStore, Protocol):
    async def approval(self, run: str, call: str) -> ApprovalRow | None: ...

    async def approvals(self, principal: str) -> list[ApprovalRow]:
        """Pending approvals of a principal, oldest first."""

    async def pending_calls(self, principal: str) -> list[tuple[str, str]]:
        """Run and call of each of those."""

    async def pending_of(self, run: str) -> list[ApprovalRow]:
        """Approvals of a run whose call may not have been executed, decided ones included."""

    async def approved_for_session(self, session: str) -> list[ApprovalRow]:
        """Approvals whose decision holds for the whole session."""

    async def decide_approval(self, decided: ApprovalDecided, also: Sequence[Change] = ()) -> bool:
        """Compare and set: return False, and write nothing, if the approval is not pending any more."""

    async def decision_link(self, sha256: str) -> DecisionLink | None:
        """The link of a token, by its hash."""

    async def grants(self, session: str) -> list[GrantRow]:
        """Grants of a session, oldest first, expired ones included."""
