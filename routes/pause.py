"""The kill switch, for admins."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from routes.errors import ASCIIResponse
from routes.requests import PauseRequest, admins_only, read_fields
from routes.services import asker, services_of


async def pause(request: Request) -> Response:
    """Nothing new begins from now on; `{"cancel": true}` also ends what runs: runs, jobs and MCP servers."""
    admins_only(asker(request))
    services, wish = services_of(request), await read_fields(request, PauseRequest, empty=True)
    try:
        await services.switch.set(paused=True)
    finally:  # what cannot be stored holds all the same
        if wish.cancel:
            await asyncio.gather(
                services.runs.cancel_all("paused"), services.jobs.cancel_all(), services.mcp.stop_all()
            )
    return ASCIIResponse({"paused": True})


async def resume(request: Request) -> Response:
    admins_only(asker(request))
    await services_of(request).switch.set(paused=False)
    return ASCIIResponse({"paused": False})
