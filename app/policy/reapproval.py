"""Ask again for the approval of a call whose target has changed since the person was asked.

Each approval has an id of its own, so that a decision on an earlier one never applies to the new one: `c1`, then
`c1~2` and `c1~3`. After that the call is refused.
"""

from __future__ import annotations

from app.core.messages import AskedCall
from app.policy.secret_rights import without_secrets
from app.storage.approvals import ApprovalRow
from tools.base.permit import fingerprint

MOST = 3  # approvals for one call
_AGAIN = "What it would change is not what it was when you were asked; nothing was done. "


def question_id(call: str, number: int) -> str:
    """Return the id of the `number`th approval (from 1) of a call."""
    return call if number == 1 else f"{call}~{number}"


def number_of(row: ApprovalRow, call: str) -> int:
    """Return the number of the row among the approvals of the call; 0 if it belongs to another call."""
    return next((number for number in range(1, MOST + 1) if row.call == question_id(call, number)), 0)


def is_stale(row: ApprovalRow, call: AskedCall, binding: str) -> bool:
    """True if the call or its binding differs from what the person was asked to approve."""
    return row.fingerprint != fingerprint(row.principal, call.name, call.arguments, binding)


def reason_again(row: ApprovalRow) -> str:
    return _AGAIN + without_secrets(row.reason, row.secrets).removeprefix(_AGAIN)


def first_reason(row: ApprovalRow) -> str:
    return row.reason.removeprefix(_AGAIN)


def given_up(name: str) -> str:
    """Return the message to the model when the call is refused in the end."""
    return (
        f"{name} was not run: what it would change was changed {MOST} times while a person decided, and nothing was "
        "done. Find out what changes it, read it again, and then try once more."
    )
