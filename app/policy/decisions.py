"""Audit rows for decisions on calls, and the message to the model when a person denies one."""

from __future__ import annotations

import time

from app.core.messages import AskedCall
from app.storage.approvals import ApprovalRow
from app.storage.audit import AuditRow
from tools.base.permit import fingerprint
from tools.toolbox import Allow, Ask, Decision, Refuse

POLICY = "policy"  # the author of a decision where no row of the table objects, and where one ends a question
MAX_ACTION = 200  # characters of a tool name, which a model may have invented
DECISIONS: dict[type, str] = {Allow: "allow", Ask: "ask", Refuse: "refuse"}


def audit_of(principal: str, run: str, call: AskedCall, decision: Decision, facts: str = "") -> AuditRow:
    """Return the audit row for the decision on a call of `principal`; `facts` are those that it rested on."""
    name, kind = written(call.name), DECISIONS[type(decision)]
    by = decision.by or (POLICY if isinstance(decision, Allow) else "")
    call_fingerprint = fingerprint(principal, call.name, call.arguments)
    return AuditRow(
        time.time(),
        principal=principal,
        action=name,
        decision=kind,
        why=decision.reason,
        by=by,
        run=run,
        call=call.id,
        fingerprint=call_fingerprint,
        facts=facts,
    )


def written(name: str) -> str:
    """Return a tool name, which a model may have invented, in printable characters that any database accepts."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in name[:MAX_ACTION])


def denial_of(row: ApprovalRow) -> str:
    """Return the message to the model for a call that was denied or expired."""
    if row.state == "expired":
        within = f" within {row.expires - row.created:g} s" if row.expires else " in time"
        return f"This call was not run: it needs approval, and nobody decided{within}. Go on without."
    note = f", saying: {row.note}" if row.note else ""
    end = "" if note.endswith((".", "!", "?")) else "."
    return (
        f"This call was not run: {row.by} denied it{note}{end} Do not try it again; go on without, or ask what to do."
    )
