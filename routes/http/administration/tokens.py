"""/tokens: who may come in, for admins."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from app.storage.profiles import SHARED
from routes.access.tokens import TokenRequest, make_token, revoke_token, token_fields
from routes.http.people.people import disable_admin
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.redaction_middleware import SHOWN_ONCE
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import current_principal, services_of


async def list_tokens(request: Request) -> Response:
    """Access tokens. Oldest first, those that were revoked or have expired included."""
    return ASCIIResponse({"tokens": [token_fields(row) for row in await services_of(request).store.tokens()]})


async def create_token(request: Request) -> Response:
    """Make a token; only this answer has it."""
    services, principal = services_of(request), current_principal(request)
    body = await read_fields(request, TokenRequest)
    if principal.profile and body.profile != principal.profile:
        bound = f"The token of {principal.name} is bound to the profile {principal.profile}"
        raise Refused(
            403, "forbidden", f"{bound}, and can create only tokens that are bound to it. Send profile as well."
        )
    if body.profile:
        await services.factory.profiles.named(body.profile, SHARED)
    token, row = await make_token(services.store, body, principal.name)
    setattr(request.state, SHOWN_ONCE, True)
    return ASCIIResponse({"token": token} | token_fields(row), 201)


async def delete_token(request: Request) -> Response:
    """Revoke a token.

    Answers when nothing of its principal runs any more. What the principal owns is kept, for a new token of the same
    name.
    """
    services, name = services_of(request), request.path_params["name"]
    await disable_admin(services, name)
    await revoke_token(services.store, name, current_principal(request).name)
    await services.presence.revoked(name)
    return Response(status_code=204)


ROUTES = tagged(
    "Server",
    Route("GET /tokens", list_tokens, rights="admin", answer={"tokens": ["@Token"]}),
    Route(
        "POST /tokens",
        create_token,
        rights="admin",
        answer={"token": "text", "name": "text"},
        statuses=(201,),
        errors=(409,),
        body=Body(TokenRequest, {"name": "ci", "role": "user"}),
    ),
    Route("DELETE /tokens/{name}", delete_token, rights="admin"),
)
