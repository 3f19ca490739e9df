"""/sign-ins: browsers that stay signed in."""

from __future__ import annotations

import time
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.core.settings_fields import DAY_S
from app.core.strict_model import StrictModel
from app.storage.people.sign_ins import SignInRow
from app.storage.principals import Principal
from app.transcript.run_request import NotFound
from routes.access.sign_ins import cookie_name, end_sign_in, end_sign_ins, make_sign_in
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.redaction_middleware import SHOWN_ONCE
from routes.protocol.requests import admins_only, read_fields
from routes.protocol.route import Body, Query, Route, tagged
from routes.services import current_principal, services_of

LONGEST_DAYS = 365
SHOWN = ("id", "principal", "device", "created", "seen", "expires")


class SignInRequest(StrictModel):
    """The body of POST /sign-ins, which may be empty: `days` until it ends, at most those of the settings."""

    days: int | None = Field(default=None, ge=1, le=LONGEST_DAYS)


def sign_in_fields(row: SignInRow, own: str) -> dict[str, Any]:
    """`own`: the id of the sign-in of the request."""
    fields = {name: getattr(row, name) for name in SHOWN}
    return fields | {"current": row.id == own}


async def list_sign_ins(request: Request) -> Response:
    """Browsers that stay signed in.

    Yours, newest first. See [how they stay signed in](operations.md#browsers-that-stay-signed-in).
    """
    services, principal = services_of(request), current_principal(request)
    name = _owner(request, principal)
    now = time.time()
    rows = [row for row in await services.store.sign_ins(name) if row.expires > now]
    days = services.settings.sign_in_days
    return ASCIIResponse({"sign_ins": [sign_in_fields(row, principal.sign_in) for row in rows], "days": days})


async def create_sign_in(request: Request) -> Response:
    """Keep this browser signed in; only this answer has the key and the cookie.

    The two go together. 409 `no_token` for a request without a token.
    """
    services, principal = services_of(request), current_principal(request)
    body = await read_fields(request, SignInRequest, empty=True)
    most = services.settings.sign_in_days
    if most == 0:
        message = "Lasting sign-ins are off (DRAGOMAN_SIGN_IN_DAYS is 0). Sign in for this tab only."
        raise Refused(403, "sign_in_off", message)
    days = min(body.days or most, most)
    device = request.headers.get("user-agent", "")
    key, secret, row = await make_sign_in(services.store, principal, device, days * DAY_S)
    setattr(request.state, SHOWN_ONCE, True)
    answer = ASCIIResponse(sign_in_fields(row, row.id) | {"key": f"{row.id}.{key}"}, 201)
    set_cookie(request, answer, row.id, secret, round(days * DAY_S))
    return answer


async def delete_sign_in(request: Request) -> Response:
    """End a lasting sign-in. Its cookie is deleted where it is the browser's own."""
    services, principal = services_of(request), current_principal(request)
    row = await services.store.sign_in(request.path_params["sign_in"])
    if row is None or row.principal != principal.name:
        raise NotFound("There is no such sign-in. GET /sign-ins lists yours.")
    await end_sign_in(services.store, row, principal.name)
    await services.presence.look_for_ended_sign_ins()
    answer = Response(status_code=204)
    if row.id == principal.sign_in:
        set_cookie(request, answer, row.id, "", 0)
    return answer


async def delete_sign_ins(request: Request) -> Response:
    """End all of your lasting sign-ins."""
    services, principal = services_of(request), current_principal(request)
    name = _owner(request, principal)
    await end_sign_ins(services.store, name, principal.name)
    await services.presence.look_for_ended_sign_ins()
    answer = Response(status_code=204)
    if principal.sign_in and name == principal.name:
        set_cookie(request, answer, principal.sign_in, "", 0)
    return answer


def _owner(request: Request, principal: Principal) -> str:
    """The person whose sign-ins are meant. Raises Refused."""
    name = request.query_params.get("principal") or principal.name
    if name != principal.name:
        admins_only(principal)
    return name


def set_cookie(request: Request, answer: Response, id: str, secret: str, seconds: int) -> None:
    """Browsers say in `Origin` if they came by HTTPS, whatever a proxy in between makes of it."""
    secure = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
    name = cookie_name(id, secure=secure)
    answer.set_cookie(name, secret, max_age=seconds, path="/", secure=secure, httponly=True, samesite="strict")


ROUTES = tagged(
    "Server",
    Route(
        "GET /sign-ins",
        list_sign_ins,
        rights="user",
        answer={"sign_ins": ["@SignIn"], "days": "integer"},
        query=(Query("principal", "of this person, for admins"),),
    ),
    Route(
        "POST /sign-ins",
        create_sign_in,
        rights="user",
        answer={"id": "text", "key": "text", "expires": "number"},
        statuses=(201,),
        errors=(409,),
        body=Body(SignInRequest, {"days": 30}, required=False),
    ),
    Route(
        "DELETE /sign-ins",
        delete_sign_ins,
        rights="user",
        query=(Query("principal", "of this person, for admins"),),
    ),
    Route("DELETE /sign-ins/{sign_in}", delete_sign_in, rights="owner"),
)
