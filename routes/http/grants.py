"""Grants of a session: list and withdraw what a person has allowed for the rest of it."""

from __future__ import annotations

import json
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.storage.approvals import GrantRow
from app.transcript.run_request import NotFound
from routes.protocol.errors import ASCIIResponse
from routes.protocol.route import Route, tagged
from routes.services import current_principal, services_of


def grant_fields(row: GrantRow) -> dict[str, Any]:
    """`kind` says which of `arguments`, `pattern` and `hosts` bounds it; `arguments` are always those of the call that
    was approved, where they are known."""
    kind = "hosts" if row.hosts else "pattern" if row.pattern else "exact"
    bounds = {name: json.loads(value) for name in ("arguments", "pattern", "hosts") if (value := getattr(row, name))}
    when = {"created": row.created, "by": row.by, "expires_at": row.expires, "tainted": bool(row.tainted)}
    return {"id": row.id, "tool": row.tool, "kind": kind} | bounds | when


async def list_grants(request: Request) -> Response:
    """The grants in force.

    Oldest first: `id`, `tool`, `kind` (`exact`, `pattern` or `hosts`) with its value, `created`, `by`, `expires_at`,
    `tainted` (granted when the conversation contained untrusted text).
    """
    services = services_of(request)
    session = await services.runs.session(request.path_params["session"], current_principal(request))
    rows, now = await services.store.grants(session.id), time.time()
    return ASCIIResponse({"grants": [grant_fields(row) for row in rows if row.expires is None or now < row.expires]})


async def withdraw_all(request: Request) -> Response:
    """Withdraw all grants. Calls that they covered ask again, also in the run under way."""
    services, principal = services_of(request), current_principal(request)
    session = await services.runs.session(request.path_params["session"], principal)
    return ASCIIResponse({"withdrawn": await services.runs.withdraw_grants(session.id, principal)})


async def withdraw(request: Request) -> Response:
    """Withdraw a grant. Such calls ask again, also in the run under way."""
    services, principal, grant = services_of(request), current_principal(request), request.path_params["grant"]
    session = await services.runs.session(request.path_params["session"], principal)
    if not await services.runs.withdraw_grants(session.id, principal, grant):
        raise NotFound(f"The session has no grant {grant!r}. GET /sessions/{{id}}/grants lists them.")
    return ASCIIResponse({"withdrawn": 1})


ROUTES = tagged(
    "Sessions",
    Route("GET /sessions/{session}/grants", list_grants, rights="owner", answer={"grants": ["@Grant"]}),
    Route("DELETE /sessions/{session}/grants", withdraw_all, rights="owner", answer="@Withdrawn"),
    Route("DELETE /sessions/{session}/grants/{grant}", withdraw, rights="owner", answer="@Withdrawn"),
)
