"""Grants as they are kept: what a decision adds to a session, and what takes it back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Literal

from app.policy.grants import pattern_error
from app.storage.approvals import ApprovalRow, GrantRevoked, GrantRow
from app.storage.audit import AuditRow
from app.storage.changes import Change
from parsing import Arguments
from tools.base.permit import canonical, fingerprint
from tools.web import egress

NO_HOSTS = "This call wants no network, so there are no hosts to choose. Leave hosts out."


class UnfitArguments(Exception):
    """The call could not run with the arguments that the person gave, or their grant would fit nothing. Says why."""


@dataclass(frozen=True, slots=True)
class Review:
    """What a person decided. `arguments` replace the model's; `hosts` replace those that the call wants to reach.

    A session's grant is for the same call with exactly the same arguments, or for calls that fit `pattern` (argument ->
    pattern), or for network to `hosts`, from any command.
    """

    decision: Literal["approve", "deny"]
    scope: Literal["once", "session"] = "once"
    arguments: Arguments | None = None
    pattern: Mapping[str, str] | None = None
    hosts: Sequence[str] | None = None
    note: str | None = None


def with_chosen_hosts(arguments: Arguments, hosts: Sequence[str]) -> Arguments:
    """A call that wants network, to exactly these hosts. Raises UnfitArguments."""
    if not egress.hosts_wanted(arguments):
        raise UnfitArguments(NO_HOSTS)
    if reason := egress.host_pattern_error(hosts):
        raise UnfitArguments(reason)
    return egress.normalise_network({**arguments, egress.NETWORK: list(hosts)})


def check_grant(tool: str, review: Review, final: Arguments, *, tainted: bool = False) -> None:
    """Raises UnfitArguments where the grant would not even cover the call that it is given with."""
    if tainted and review.pattern:
        raise UnfitArguments(
            "This conversation holds untrusted text, which may have asked for the call: only a grant of exactly this "
            "call, or of hosts, would hold. Leave pattern out."
        )
    if review.pattern and (reason := pattern_error(tool, review.pattern, final)):
        raise UnfitArguments(reason)


def grant_changes(
    row: ApprovalRow, review: Review, final: Arguments, at: float, limit_s: float | None, *, tainted: bool
) -> list[Change]:
    """The grant that a decision at that time adds to its session, if any."""
    if review.decision != "approve" or review.scope != "session":
        return []
    hosts = json.dumps(egress.hosts_wanted(final)) if review.hosts else None
    pattern = canonical(dict(review.pattern)) if review.pattern else None
    exact = None if hosts or pattern else fingerprint(row.principal, row.name, final)
    return [
        GrantRow(
            f"grt_{token_hex(10)}",
            row.session,
            row.principal,
            row.name,
            at,
            row.principal,
            exact,
            pattern,
            hosts,
            canonical(final),
            at + limit_s if limit_s else None,
            tainted,
        )
    ]


def withdrawal_changes(rows: Sequence[GrantRow], by: str) -> list[Change]:
    """What takes these grants back, each with its line in the audit."""
    now = time.time()
    changes: list[Change] = []
    for row in rows:
        why = f"grant {row.id} of session {row.session}"
        audit = AuditRow(now, row.principal, row.tool, "grant withdrawn", why, by, fingerprint=row.fingerprint)
        changes += [GrantRevoked(row.id), audit]
    return changes
