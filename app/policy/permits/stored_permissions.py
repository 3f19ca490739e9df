"""Stored permissions: the changes that a decision adds, and those that withdraw one."""

from __future__ import annotations

import json
from secrets import token_hex

from app.policy.permits.bounds import bounds_of, fields_of
from app.policy.permits.permissions import words_of
from app.policy.stored_grants import Review, UnfitArguments
from app.storage.approvals import ApprovalRow
from app.storage.audit import AuditRow
from app.storage.changes import Change
from app.storage.people.permissions import PermissionRemoved, PermissionRow, PermissionUsesRemoved
from app.storage.principals import Principal
from tools.base.permit import canonical
from tools.base.rights import Role

MOST = 200  # permissions of a principal
NO_LONGER = "This call cannot be allowed for good here: approve it once, or for the session."


def check_permission(row: ApprovalRow, review: Review, principal: Principal, count: int, now: float) -> None:
    """Raise UnfitArguments unless the permission is one of those that were offered, as it was shown.

    `count`: how many the principal has.
    """
    offered = [canonical(one["pattern"]) for one in json.loads(row.proposals)]
    if not offered or principal.role is Role.GUEST:
        raise UnfitArguments(NO_LONGER)
    if count >= MOST:
        raise UnfitArguments(f"You have {count} permissions, the most that there may be. Withdraw one first.")
    if review.arguments is not None or review.hosts:
        raise UnfitArguments("A standing permission is for the call as it was shown. Leave arguments and hosts out.")
    if canonical(review.pattern) not in offered:
        raise UnfitArguments(f"Send the pattern of one of the proposals as it was shown: {' or '.join(offered)}.")
    if review.expires is not None and review.expires <= now:
        raise UnfitArguments("expires: that time has passed. Send a later Unix time, or leave it out.")


def permission_changes(row: ApprovalRow, review: Review, at: float) -> list[Change]:
    """Return the permission that a decision gives, and its audit row, if it gives one."""
    if review.decision != "approve" or review.scope != "always" or review.pattern is None:
        return []
    bounds = bounds_of(review.pattern)
    given = PermissionRow(
        f"prm_{token_hex(10)}",
        principal=row.principal,
        tool=row.name,
        bounds=canonical(fields_of(bounds)),
        created=at,
        by=row.principal,
        run=row.run,
        call=row.call,
        per_day=review.per_day,
        expires=review.expires,
        secrets=row.secrets,
    )
    why = f"permission {given.id}: {words_of(bounds)}"
    return [given, _audit(given, "permission given", why, row.principal, at)]


def removal_changes(row: PermissionRow, by: str, at: float) -> list[Change]:
    """Return the changes that withdraw a permission."""
    audit = _audit(row, "permission withdrawn", f"permission {row.id}", by, at)
    return [PermissionRemoved(row.id), PermissionUsesRemoved(row.id), audit]


def _audit(row: PermissionRow, decision: str, why: str, by: str, at: float) -> AuditRow:
    return AuditRow(
        at, principal=row.principal, action=row.tool, decision=decision, why=why, by=by, run=row.run, call=row.call
    )
