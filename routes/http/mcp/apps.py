"""Requests of the apps of MCP servers, which the page passes on (MCP Apps), and the state that they have kept."""

from __future__ import annotations

import json
import time
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.core.strict_model import StrictModel
from app.runs.composition.app_requests import AppRefused, AppRequests, Method, app_requests
from routes.access.request_rates import APPS
from routes.lanes.streams import until_left
from routes.protocol.errors import ASCIIResponse, Refused, TooSoon
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import current_principal, services_of

PER_MINUTE = 120  # requests of one app
MOST = 256 * 1024  # characters of one


class AppRequest(StrictModel):
    """The body of POST /runs/{run}/calls/{call}/app: a request as the app has made it."""

    method: Method
    params: dict[str, Any] = Field(default_factory=dict)


async def ask_for_app(request: Request) -> Response:
    """Make a request of an app that shows the result of a call.

    `method` and `params` as the app has sent them: `tools/call` of a tool of its own server (it waits for an approval
    as any call), `resources/read` there, `ui/message` once the person has confirmed it, `ui/update-model-context`,
    `ui/open-link` once the person has clicked, and `state`, which keeps its `params`. 403 `app_refused` says what an
    app may not do. See [apps](mcp.md#apps).
    """
    services, app = services_of(request), await _app(request)
    requests_made, reset = await services.rates.count(APPS, f"{app.run.id} {app.shown.call}", time.time())
    if requests_made > PER_MINUTE:
        raise TooSoon("too_many_requests", f"An app may make {PER_MINUTE} requests per minute.", reset)
    body = await read_fields(request, AppRequest, MOST)
    if len(json.dumps(body.params)) > MOST:
        raise Refused(413, "too_long", f"A request of an app has at most {MOST:,} characters.")
    services.switch.check()
    with services.presence.place(app.principal):
        return await until_left(request, _answer(app, body))


async def _answer(app: AppRequests, body: AppRequest) -> Response:
    try:
        return ASCIIResponse({"result": await app.answer(body.method, body.params)})
    except AppRefused as refused:
        raise Refused(403, "app_refused", str(refused)) from None


async def show_app(request: Request) -> Response:
    """The state of an app.

    `state` as it was last kept, with what it gave the model (`context`), and the `tool` whose result it shows: null
    once its server lists it no more. `origin` is `apps_origin`, empty without one.
    """
    origin = services_of(request).settings.apps_origin or ""
    return ASCIIResponse(await (await _app(request)).state() | {"origin": origin})


async def _app(request: Request) -> AppRequests:
    """Raises NotFound."""
    names, principal = request.path_params, current_principal(request)
    return await app_requests(services_of(request).factory, principal, names["run"], names["call"])


ROUTES = tagged(
    "Runs",
    Route(
        "POST /runs/{run}/calls/{call}/app",
        ask_for_app,
        rights="owner",
        answer={"result": "object"},
        errors=(403, 409, 502),
        body=Body(AppRequest, {"method": "tools/call", "params": {"name": "get-time", "arguments": {}}}),
    ),
    Route(
        "GET /runs/{run}/calls/{call}/app",
        show_app,
        rights="owner",
        answer={"state": "object", "tool": "object?", "origin": "text"},
    ),
)
