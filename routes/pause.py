"""The kill switch, for admins."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from app.people import Role
from routes.errors import ASCIIResponse, Refused
from routes.requests import read_pause
from routes.services import asker, services_of


async def pause(request: Request) -> Response:
    """No model is asked and no tool started from now on; `{"cancel": true}` also stops what runs."""
    _admins_only(request)
    services, wish = services_of(request), await read_pause(request)
    try:
        await services.switch.set(paused=True)
    finally:  # what cannot be stored holds all the same
        if wish.cancel:
            await services.runs.cancel_all("paused")
    return ASCIIResponse({"paused": True})


async def resume(request: Request) -> Response:
    _admins_only(request)
    await services_of(request).switch.set(paused=False)
    return ASCIIResponse({"paused": False})


def _admins_only(request: Request) -> None:
    if asker(request).role != Role.ADMIN:
        raise Refused(403, "forbidden", "Only admins may pause and resume the server.")
