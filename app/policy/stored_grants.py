"""Stored grants: the changes that a decision adds to a session, and those that withdraw grants."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any, Literal

from msgspec import Struct

from app.policy.doors import Door
from app.policy.grants import pattern_error
from app.storage.approvals import ApprovalRow, GrantRevoked, GrantRow
from app.storage.audit import AuditRow
from app.storage.changes import Change
from parsing import Arguments
from tools.base.permit import canonical, fingerprint
from tools.web import egress

NO_HOSTS = "This call requests no network access, so there are no hosts to choose. Leave hosts out."


class UnfitArguments(Exception):
    """The call cannot run with the person's arguments, or their grant would match no call. The message says why."""


class Review(Struct, frozen=True):
    """A person's decision. `arguments` replace the model's; `hosts` replace those that the call requests.

    A grant for the session allows the same call with the same arguments, or calls that match `pattern` (argument ->
    pattern), or network access to `hosts` from any command. With the scope `always` the pattern is that of a proposal,
    for a standing permission of `per_day` uses until `expires`.
    """

    decision: Literal["approve", "deny"]
    scope: Literal["once", "session", "always"] = "once"
    arguments: Arguments | None = None
    pattern: Mapping[str, Any] | None = None
    hosts: Sequence[str] | None = None
    note: str | None = None
    door: Door = "api"
    per_day: int | None = None
    expires: float | None = None


def with_chosen_hosts(arguments: Arguments, hosts: Sequence[str]) -> Arguments:
    """Limit the network request of a call to these hosts. Raises UnfitArguments."""
    if not egress.hosts_wanted(arguments):
        raise UnfitArguments(NO_HOSTS)
    if reason := egress.host_pattern_error(hosts):
        raise UnfitArguments(reason)
    return egress.normalise_network({**arguments, egress.NETWORK: list(hosts)})


def check_grant(tool: str, review: Review, final: Arguments, *, tainted: bool = False) -> None:
    """Raise UnfitArguments if the grant would not cover even the call that it is given with."""
    if tainted and review.pattern:
        raise UnfitArguments(
            "This conversation holds untrusted text, which may have requested the call: only a grant for exactly this "
            "call, or for hosts, is possible. Leave pattern out."
        )
    if review.pattern and (reason := pattern_error(tool, review.pattern, final)):
        raise UnfitArguments(reason)


def grant_changes(
    row: ApprovalRow, review: Review, final: Arguments, at: float, limit_s: float | None, *, tainted: bool
) -> list[Change]:
    """Return the grant that a decision adds to its session, if any."""
    if review.decision != "approve" or review.scope != "session":
        return []
    hosts = json.dumps(egress.hosts_wanted(final)) if review.hosts else None
    pattern = canonical(dict(review.pattern)) if review.pattern else None
    exact = None if hosts or pattern else fingerprint(row.principal, row.name, final)
    return [
        GrantRow(
            f"grt_{token_hex(10)}",
            session=row.session,
            principal=row.principal,
            tool=row.name,
            created=at,
            by=row.principal,
            fingerprint=exact,
            pattern=pattern,
            hosts=hosts,
            arguments=canonical(final),
            expires=at + limit_s if limit_s else None,
            tainted=tainted,
            secrets=row.secrets,
        )
    ]


def withdrawal_changes(rows: Sequence[GrantRow], by: str) -> list[Change]:
    """Return the changes that withdraw these grants, with their audit rows."""
    now = time.time()
    changes: list[Change] = []
    for row in rows:
        why = f"grant {row.id} of session {row.session}"
        audit = AuditRow(
            now,
            principal=row.principal,
            action=row.tool,
            decision="grant withdrawn",
            why=why,
            by=by,
            fingerprint=row.fingerprint,
        )
        changes += [GrantRevoked(row.id), audit]
    return changes
