"""A call that is asked for again, because what it would change has changed since the person was shown it.

Each question has an id of its own, so that a decision on an earlier one is never taken for the new one: `c1`, then
`c1~2` and `c1~3`. After that the call is refused.
"""

from __future__ import annotations

from app.core.messages import AskedCall
from app.storage.approvals import ApprovalRow
from tools.base.permit import fingerprint

MOST = 3  # questions for one call
_AGAIN = "What it would change is not what it was when you were asked; nothing was done. "


def question_id(call: str, number: int) -> str:
    """The id of the question for a call that is asked the `number`th time, from 1."""
    return call if number == 1 else f"{call}~{number}"


def number_of(row: ApprovalRow, call: str) -> int:
    """Which question for the call a row is; 0 for one of another call."""
    return next((number for number in range(1, MOST + 1) if row.call == question_id(call, number)), 0)


def is_stale(row: ApprovalRow, call: AskedCall, binding: str) -> bool:
    """Whether the call, and what it binds, is not what the person was asked for."""
    return row.fingerprint != fingerprint(row.principal, call.name, call.arguments, binding)


def reason_again(row: ApprovalRow) -> str:
    return _AGAIN + row.reason.removeprefix(_AGAIN)


def first_reason(row: ApprovalRow) -> str:
    return row.reason.removeprefix(_AGAIN)


def given_up(name: str) -> str:
    """What the model is told in the end."""
    return (
        f"{name} was not run: what it would change was changed {MOST} times while a person decided, and nothing was "
        "done. Find out what changes it, read it again, and then try once more."
    )
