"""/permissions: what a person has allowed for good, from approvals."""

from __future__ import annotations

import json
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.policy.permits.permissions import day_of, permission_of
from app.storage.people.permissions import PermissionRow, PermissionUses
from app.storage.principals import Principal
from app.transcript.run_request import NotFound
from routes.protocol.errors import ASCIIResponse
from routes.protocol.requests import admins_only
from routes.protocol.route import Query, Route, tagged
from routes.services import current_principal, services_of
from tools.base.rights import Role

UNREADABLE = "A newer version has written it: it allows nothing here."
NO_USES = PermissionUses("", 0, 0, 0.0)


def permission_fields(row: PermissionRow, uses: PermissionUses = NO_USES) -> dict[str, Any]:
    permission = permission_of(row)
    given = {"run": row.run, "call": row.call, "created": row.created, "by": row.by}
    limits = {"per_day": row.per_day, "expires_at": row.expires}
    counts = {"uses_today": uses.today, "uses": uses.total, "last_used": uses.last or None}
    words = permission.words if permission else UNREADABLE
    bounds = json.loads(row.bounds) if permission else {}
    return {"id": row.id, "tool": row.tool, "words": words, "pattern": bounds} | limits | counts | given


async def list_permissions(request: Request) -> Response:
    """Your standing permissions.

    Oldest first, expired ones included: the bounds as `pattern` and in `words`, the uses of today (UTC) and in all. See
    [standing permissions](rules.md#standing-permissions).
    """
    services, name = services_of(request), _owner(request, current_principal(request))
    uses = {one.permission: one for one in await services.store.permission_uses(name, day_of(time.time()))}
    rows = await services.store.permissions(name)
    return ASCIIResponse({"permissions": [permission_fields(row, uses.get(row.id, NO_USES)) for row in rows]})


async def withdraw_permission(request: Request) -> Response:
    """Withdraw a standing permission. Such calls ask again, also in runs under way; its counts are deleted."""
    services, principal, id = services_of(request), current_principal(request), request.path_params["permission"]
    row = await services.store.permission(id)
    if row is None or (row.principal != principal.name and principal.role is not Role.ADMIN):
        raise NotFound(f"There is no permission {id!r}. GET /permissions lists yours.")
    await services.runs.withdraw_permission(row, principal)
    return Response(status_code=204)


def _owner(request: Request, principal: Principal) -> str:
    """The person whose permissions are listed. Raises Refused."""
    name = request.query_params.get("principal") or principal.name
    if name != principal.name:
        admins_only(principal)
    return name


ROUTES = tagged(
    "Server",
    Route(
        "GET /permissions",
        list_permissions,
        rights="user",
        answer={"permissions": ["@Permission"]},
        query=(Query("principal", "of this person, for admins"),),
    ),
    Route("DELETE /permissions/{permission}", withdraw_permission, rights="owner"),
)
