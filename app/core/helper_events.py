"""The events of helpers: runs that a call of `delegate` begins, waits for and answers with."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct


class HelperStarted(Struct, frozen=True, kw_only=True):
    """A call has begun a helper: a run of its own, in a session of its own. `depth` is 1 for a helper of this run.

    `GET /runs/{helper}/events` has its events.
    """

    type: ClassVar[str] = "helper.started"
    call: str
    helper: str
    helper_session: str
    model: str
    tools: list[str]
    depth: int


class HelperApproval(Struct, frozen=True):
    """A call below this run needs approval, or (any other `state` than `pending`) does no longer.

    `path`: the helpers from this run down to the one that asks, whose `approval` is decided with
    `POST /runs/{last of path}/approvals/{approval}`. `call` is the call of this run that waits for them.
    """

    type: ClassVar[str] = "helper.approval"
    call: str
    path: list[str]
    approval: str
    state: str
    name: str | None = None
    arguments: dict[str, Any] | None = None
    reason: str | None = None
    expires_at: float | None = None
    by: str | None = None
    door: str | None = None


class HelperFinished(Struct, frozen=True, kw_only=True):
    """A helper has ended, with the `reason` or code of its last event; `usage` is its own."""

    type: ClassVar[str] = "helper.finished"
    call: str
    helper: str
    reason: str
    rounds: int
    calls: int
    usage: dict[str, Any]
