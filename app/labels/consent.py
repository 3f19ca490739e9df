"""Before each model request: its labels, and a person's consent where a rule lets that be asked for.

The question is an approval with the endpoint and the labels as its arguments. An approval for the session is a grant
like those of calls: it is listed with them, and withdrawn as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from secrets import token_hex
from typing import Any

from app.core.events import ApprovalRequired
from app.core.labels import FORBIDDEN
from app.core.messages import AskedCall
from app.core.provider import ProviderFailed
from app.labels.run_labels import RunLabels
from app.models.endpoints.model_handle import ModelHandle
from app.policy.approvals import Approvals
from app.policy.label_limits import carried
from app.policy.questions import DIALECT, without_answer
from app.storage.audit import AuditRow
from app.transcript.conversation import Conversation

NAME = "send_labelled_data"  # of the question, in place of a tool's
ASKED = (
    "{carried} The rules let {labels} go only to {endpoints}, and none of these can answer here. Approve it to send "
    "the conversation to {name} in this run, or in the whole session."
)


async def clear_request(
    labels: RunLabels,
    approvals: Approvals,
    conversation: Conversation,
    waiting: Callable[[], AbstractContextManager[None]],
) -> None:
    """Take the labels of new messages, and make sure that an endpoint may have the next request.

    Raises ProviderFailed with FORBIDDEN, StoreFailed.
    """
    await labels.take_messages()
    route, clearance = labels.route, labels.route.clearance
    if clearance is None:
        return
    approved = {pair for handle in route.handles for pair in granted(labels, handle)}
    clearance.approved = approved | labels.consented
    if not route.permitted:
        handle = next((handle for handle in route.handles if may_ask(labels, handle)), None)
        asks = handle is not None and not labels.gate.policy.unattended
        if asks and handle and await _asked(labels, handle, approvals, conversation, waiting):
            held = clearance.withheld(handle.endpoint, handle.labels)
            labels.consented |= {(handle.endpoint, label) for label in held}
            clearance.approved = approved | labels.consented
    try:
        route.check_labels()
    except ProviderFailed as failure:
        principal = labels.gate.principal.name
        why = failure.message
        run = conversation.run
        conversation.record(AuditRow(time.time(), principal, "model request", "refuse", why=why, by=FORBIDDEN, run=run))
        raise


def may_ask(labels: RunLabels, handle: ModelHandle) -> bool:
    """Return True if the rules of all labels that the endpoint may not have let a person be asked."""
    policy = labels.services.policy
    held = policy.withheld(labels.labels, handle.endpoint, handle.labels)
    return all((rule := policy.rules.get(label)) and rule.otherwise == "ask" for label in held)


def arguments_of(labels: RunLabels, handle: ModelHandle) -> dict[str, Any]:
    held = labels.services.policy.withheld(labels.labels, handle.endpoint, handle.labels)
    return {"endpoint": handle.endpoint, "labels": sorted(held)}


def granted(labels: RunLabels, handle: ModelHandle) -> set[tuple[str, str]]:
    """Return the labels that grants of the session let this endpoint have, each with its name."""
    wanted = arguments_of(labels, handle)
    principal = labels.gate.principal.name
    grants = [grant for grant in labels.gate.policy.grants if grant.tool == NAME]
    if any(grant.covers(principal, wanted) for grant in grants):
        return {(handle.endpoint, label) for label in wanted["labels"]}
    return set()


async def _asked(
    labels: RunLabels,
    handle: ModelHandle,
    approvals: Approvals,
    conversation: Conversation,
    waiting: Callable[[], AbstractContextManager[None]],
) -> bool:
    """Ask the person, once in a run; return True if they approve. Raises StoreFailed."""
    wanted = arguments_of(labels, handle)
    run = conversation.run
    rules = labels.services.policy.rules
    endpoints = sorted({one for label in wanted["labels"] for one in rules[label].endpoints or ()})
    reason = ASKED.format(
        carried=carried(labels.labels),
        labels=", ".join(wanted["labels"]),
        endpoints=", ".join(endpoints) or "no endpoint",
        name=handle.name,
    )
    call = AskedCall(f"q{token_hex(4)}", NAME, wanted, DIALECT)
    async with approvals.question_lock(run):
        row = approvals.open_question(
            run=run,
            session=conversation.session,
            principal=labels.gate.principal,
            asked=call,
            reason=reason,
            objection=_objection,
            limit_s=None,
            for_session=True,
        )
        conversation.record(row)
        conversation.log_event(ApprovalRequired(call.id, call.name, call.arguments, reason, row.expires))
        await conversation.stored()
        with waiting():
            row = await approvals.answer(row)
    conversation.log_event(without_answer(row))
    if row.scope == "session" and row.state == "approved":
        labels.gate.grant(await approvals.grants(conversation.session))
    return row.state == "approved"


def _objection(edited: dict[str, Any]) -> str | None:
    return "The endpoint and the labels cannot be changed here: leave arguments out." if edited else None
