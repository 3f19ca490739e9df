"""The kill switch, for admins."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from routes.errors import ASCIIResponse
from routes.requests import PauseRequest, admins_only, read_fields
from routes.services import asker, services_of


async def pause(request: Request) -> Response:
    """No model is asked and no tool started from now on; `{"cancel": true}` also stops what runs."""
    admins_only(asker(request))
    services, wish = services_of(request), await read_fields(request, PauseRequest, empty=True)
    try:
        await services.switch.set(paused=True)
    finally:  # what cannot be stored holds all the same
        if wish.cancel:
            await services.runs.cancel_all("paused")
    return ASCIIResponse({"paused": True})


async def resume(request: Request) -> Response:
    admins_only(asker(request))
    await services_of(request).switch.set(paused=False)
    return ASCIIResponse({"paused": False})
