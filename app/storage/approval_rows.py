"""Rows and changes of what people decide: calls that wait, and what was granted for a session."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """A call that waits for a person, or what came of it.

    `state` is `pending`, `approved`, `denied`, `expired` or `withdrawn`: its run ended, or it is forbidden by now.
    `arguments` is JSON, `fingerprint` what `permit` makes of the call. `edited`: the JSON of other arguments that
    the person gave, `note`: what the person said to it. `expires` is None where it waits without an end.
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


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """What became of an approval. It takes effect only if that is still pending."""

    run: str
    call: str
    state: str
    decided: float
    by: str
    scope: str | None = None
    edited: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class GrantRow:
    """Calls of `tool` that need no approval again in a session, until `expires`.

    Those with this very `fingerprint`, those whose arguments fit `pattern` (JSON, argument -> pattern), or, of all
    commands, those that want no network but to `hosts` (JSON, a list). `arguments`: JSON of the call that was approved.
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


@dataclass(frozen=True, slots=True)
class GrantGone:
    """A grant that was withdrawn."""

    id: str


ApprovalChange = ApprovalRow | ApprovalDecided | GrantRow | GrantGone
