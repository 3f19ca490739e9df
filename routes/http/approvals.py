"""Calls that wait for a person: which, the change that each would make, and what the person says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import Response

from app.policy.approvals import is_over
from app.policy.stored_grants import Review
from app.storage.approvals import ApprovalRow
from app.storage.runs import RunStore
from app.transcript.run_request import NotFound
from app.workspace.write_preview import preview_of
from routes.http.workspace.rights import may_use
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import ApprovalRequest, read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import current_principal, services_of
from tools.base.permit import fingerprint

ASKED = ("run", "call", "session", "name", "reason", "state")  # of the row, as they are
NO_PREVIEW = "{name} does not change a file, so there is nothing to compare. Review its arguments instead."


def approval_fields(row: ApprovalRow) -> dict[str, Any]:
    named = {name: getattr(row, name) for name in ASKED}
    decided = {name: getattr(row, name) for name in ("by", "door", "scope", "note") if getattr(row, name) is not None}
    edited = {"edited": json.loads(row.edited)} if row.edited else {}
    arguments = {"arguments": json.loads(row.arguments), "expires_at": row.expires}
    arguments |= {"origins": origins} if (origins := json.loads(row.origins)) else {}
    offered = {"proposals": proposals} if row.state == "pending" and (proposals := json.loads(row.proposals)) else {}
    return named | arguments | decided | edited | offered


async def with_path(store: RunStore, row: ApprovalRow) -> dict[str, Any]:
    """The fields, and for a call of a helper the runs from the conversation's own down to the helper."""
    lineage = await store.lineage(row.run)
    above = [{"session": one.parent_session, "run": one.parent_run, "call": one.call} for one in lineage]
    own = {"session": row.session, "run": row.run, "call": row.call}
    return approval_fields(row) | ({"path": [*above, own]} if lineage else {})


async def list_approvals(request: Request) -> Response:
    """The calls that wait for your approval.

    Oldest first. `proposals` are the [standing permissions](rules.md#standing-permissions) that can be given with it,
    as `pattern` and `words`. Those of [helpers](helpers.md) have the `path` of runs down to the one that asks, as
    `{session, run, call}` each.
    """
    store = services_of(request).store
    rows = await store.approvals(current_principal(request).name)
    return ASCIIResponse({"approvals": [await with_path(store, row) for row in rows if not is_over(row)]})


async def decide(request: Request) -> Response:
    """Approve or deny a waiting call.

    `approve` or `deny`; 409 if it was already decided, with the `decision`, `by` whom and by which `door`, 410 if it
    has expired. See [approvals](approvals-and-sandbox.md#deciding).
    """
    services, principal = services_of(request), current_principal(request)
    run, call = request.path_params["run"], request.path_params["call"]
    await services.runs.approvals.row(run, call, principal)
    body = await read_fields(request, ApprovalRequest, services.settings.max_message_bytes)
    if principal.is_linked and body.scope != "once":
        raise Refused(403, "forbidden", "Through a bot a call is approved once. Your own page has the other scopes.")
    review = Review(
        decision=body.decision,
        scope=body.scope,
        arguments=body.arguments,
        pattern=body.pattern,
        hosts=body.hosts,
        note=body.note,
        door=body.door,
        per_day=body.per_day,
        expires=body.expires,
    )
    return ASCIIResponse(approval_fields(await services.runs.decide(run, call, principal, review)))


async def show_preview(request: Request) -> Response:
    """The change that a waiting `write_file` or `edit_file` would make.

    `change` (`create`, `replace`, `edit`, or `fail` with the reason in `note`), `path`, `size`, `lines` and `modified`
    of the file that is there, a `diff` against it, or in `note` why there is none. `current` is false once the file has
    changed since the question, and then an approval asks again.
    """
    services, principal = services_of(request), current_principal(request)
    row = await services.runs.approvals.row(request.path_params["run"], request.path_params["call"], principal)
    arguments = json.loads(row.arguments)
    may_read = await may_use(services, principal, "read_file")
    workspace = await services.factory.workspace_of(principal, row.session)
    preview = await asyncio.to_thread(preview_of, row.name, arguments, workspace, may_read=may_read)
    if preview is None:
        raise NotFound(NO_PREVIEW.format(name=row.name))
    fields = to_builtins(preview)
    state = fingerprint(row.principal, row.name, arguments, fields.pop("binding"))
    return ASCIIResponse(fields | {"current": state == row.fingerprint})


ROUTES = tagged(
    "Runs",
    Route(
        "POST /runs/{run}/approvals/{call}",
        decide,
        rights="owner",
        answer="@Approval",
        errors=(409, 410),
        body=Body(ApprovalRequest, {"decision": "approve"}),
    ),
    Route(
        "GET /runs/{run}/approvals/{call}/preview",
        show_preview,
        rights="owner",
        answer={"path": "text", "change": "text", "diff": "text?", "note": "text", "current": "boolean"},
    ),
    Route("GET /approvals", list_approvals, rights="user", answer={"approvals": ["@Approval"]}),
)
