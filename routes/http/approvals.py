"""Calls that wait for a person: which, and what the person says."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.policy.approvals import is_over
from app.policy.stored_grants import Review
from app.storage.approvals import ApprovalRow
from app.storage.runs import HelperStore
from routes.protocol.errors import ASCIIResponse
from routes.protocol.requests import ApprovalRequest, read_fields
from routes.services import current_principal, services_of


def approval_fields(row: ApprovalRow) -> dict[str, Any]:
    named = {name: getattr(row, name) for name in ("run", "call", "session", "name", "reason", "state")}
    decided = {name: getattr(row, name) for name in ("by", "scope", "note") if getattr(row, name) is not None}
    edited = {"edited": json.loads(row.edited)} if row.edited else {}
    arguments = {"arguments": json.loads(row.arguments), "expires_at": row.expires}
    return named | arguments | decided | edited


async def with_path(store: HelperStore, row: ApprovalRow) -> dict[str, Any]:
    """The fields, and for a call of a helper the runs from the conversation's own down to the helper."""
    lineage = await store.lineage(row.run)
    above = [{"session": one.parent_session, "run": one.parent_run, "call": one.call} for one in lineage]
    own = {"session": row.session, "run": row.run, "call": row.call}
    return approval_fields(row) | ({"path": [*above, own]} if lineage else {})


async def list_approvals(request: Request) -> Response:
    """The pending approvals of the caller, oldest first."""
    store = services_of(request).store
    rows = await store.approvals(current_principal(request).name)
    return ASCIIResponse({"approvals": [await with_path(store, row) for row in rows if not is_over(row)]})


async def decide(request: Request) -> Response:
    """200 with the decision, 409 if there was one already, 410 when it comes too late."""
    services, principal = services_of(request), current_principal(request)
    run, call = request.path_params["run"], request.path_params["call"]
    await services.runs.approvals.row(run, call, principal)
    body = await read_fields(request, ApprovalRequest, services.settings.max_message_bytes)
    review = Review(body.decision, body.scope, body.arguments, body.pattern, body.hosts, body.note)
    return ASCIIResponse(approval_fields(await services.runs.decide(run, call, principal, review)))
