"""What somebody has used of their budgets, and when those begin again."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from app.people import LOCAL_USER, Principal, principal_of
from app.store import Store
from app.turns import NotFound
from routes.errors import ASCIIResponse
from routes.requests import admins_only
from routes.services import asker, services_of


async def show_usage(request: Request) -> Response:
    """Of the asker, or for admins of `?principal=`."""
    services, principal = services_of(request), asker(request)
    name = request.query_params.get("principal", principal.name)
    if name != principal.name:
        admins_only(principal)
        principal = await _once_known(services.store, name)
    return ASCIIResponse({"principal": name, "usage": await services.runs.ledger.usage(principal)})


async def _once_known(store: Store, name: str) -> Principal:
    """Somebody with a token, in use or not. Raises NotFound."""
    for row in reversed(await store.tokens()):
        if row.name == name:
            return principal_of(row)
    if name == LOCAL_USER.name:
        return LOCAL_USER
    raise NotFound(f"There is no {name[:80]!a}. GET /tokens lists whom there is.")
