"""/tokens: who may come in, for admins."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from app.storage.profiles import SHARED
from routes.access.tokens import TokenRequest, make_token, revoke_token, token_fields
from routes.http.people.people import disable_admin
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.redaction_middleware import SHOWN_ONCE
from routes.protocol.requests import admins_only, read_fields
from routes.services import current_principal, services_of


async def list_tokens(request: Request) -> Response:
    """Oldest first, those that were revoked or have expired included."""
    admins_only(current_principal(request))
    return ASCIIResponse({"tokens": [token_fields(row) for row in await services_of(request).store.tokens()]})


async def create_token(request: Request) -> Response:
    """The only answer that ever has the token in it."""
    admins_only(current_principal(request))
    services, principal = services_of(request), current_principal(request)
    body = await read_fields(request, TokenRequest)
    if principal.profile and body.profile != principal.profile:
        bound = f"The token of {principal.name} is bound to the profile {principal.profile}"
        raise Refused(
            403, "forbidden", f"{bound}, and can create only tokens that are bound to it. Send profile as well."
        )
    if body.profile:
        await services.profiles.named(body.profile, SHARED)
    token, row = await make_token(services.store, body, principal.name)
    setattr(request.state, SHOWN_ONCE, True)
    return ASCIIResponse({"token": token} | token_fields(row), 201)


async def delete_token(request: Request) -> Response:
    """Answers when nothing of theirs runs any more. What they own is kept, for a new token of the same name."""
    admins_only(current_principal(request))
    services, name = services_of(request), request.path_params["name"]
    await disable_admin(services, name)
    await revoke_token(services.store, name, current_principal(request).name)
    await services.presence.revoked(name)
    return Response(status_code=204)
