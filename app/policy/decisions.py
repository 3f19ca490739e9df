"""What is kept of a decision on a call, and what the model is told of one that a person took."""

from __future__ import annotations

import time

from app.core.messages import AskedCall
from app.storage.approvals import ApprovalRow
from app.storage.audit import AuditRow
from tools.base.permit import fingerprint
from tools.toolbox import Allow, Ask, Decision, Refuse

MAX_ACTION = 200  # characters of a name that a model may have made up
DECISIONS: dict[type, str] = {Allow: "allow", Ask: "ask", Refuse: "refuse"}


def audit_of(who: str, run: str, call: AskedCall, decision: Decision, by: str) -> AuditRow:
    """`by` took the decision on the call of `who`."""
    name, kind = written(call.name), DECISIONS[type(decision)]
    why = "" if isinstance(decision, Allow) else decision.reason
    return AuditRow(time.time(), who, name, kind, why, by, run, call.id, fingerprint(who, call.name, call.arguments))


def written(name: str) -> str:
    """A name that a model may have made up, as every database takes it."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in name[:MAX_ACTION])


def denial_of(row: ApprovalRow) -> str:
    """What the model is told of a call that a person did not allow, or nobody."""
    if row.state == "expired":
        within = f" within {row.expires - row.created:g} s" if row.expires else " in time"
        return f"This call was not run: it needs approval, and nobody decided{within}. Go on without."
    said = f", saying: {row.note}" if row.note else ""
    end = "" if said.endswith((".", "!", "?")) else "."
    told = f"This call was not run: {row.by} denied it{said}{end}"
    return f"{told} Do not try it again; go on without, or ask what to do."
