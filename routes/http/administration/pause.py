"""The kill switch, for admins."""

from __future__ import annotations

import asyncio
import logging

from starlette.requests import Request
from starlette.responses import Response

from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import PauseRequest, read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import Services, services_of

_log = logging.getLogger(__name__)


async def pause(request: Request) -> Response:
    """Pause the server.

    The [kill switch](operations.md#the-kill-switch): nothing new begins from now on. `{"cancel": true}` also ends what
    runs: runs, jobs and MCP servers.
    """
    services, body = services_of(request), await read_fields(request, PauseRequest, empty=True)
    try:
        await services.switch.set(paused=True)
    finally:  # what cannot be stored holds all the same
        if body.cancel:
            await _end_all(services)
    return ASCIIResponse({"paused": True})


async def _end_all(services: Services) -> None:
    """Each kind is ended, whatever becomes of the others. Raises Refused, naming what could not be ended."""
    kinds = {
        "runs": services.runs.cancel_all("paused"),
        "jobs": services.jobs.cancel_all(),
        "MCP servers": services.mcp.manager.stop_all(),
        "other servers": services.replication.end_all_elsewhere(),
    }
    results = await asyncio.gather(*kinds.values(), return_exceptions=True)
    wrong = {kind: one for kind, one in zip(kinds, results, strict=True) if isinstance(one, BaseException)}
    for kind, error in wrong.items():
        _log.error("the kill switch could not end all %s", kind, exc_info=error)
    if wrong:
        message = (
            f"The server is paused and starts nothing new, but some of these may still be running: {', '.join(wrong)}."
        )
        raise Refused(
            500,
            "not_all_ended",
            f"{message} Try again; if that does not help, stop the server. Its log has the details.",
        )


async def resume(request: Request) -> Response:
    """Go on after a pause."""
    await services_of(request).switch.set(paused=False)
    return ASCIIResponse({"paused": False})


ROUTES = tagged(
    "Server",
    Route(
        "POST /pause",
        pause,
        rights="admin",
        answer="@Paused",
        body=Body(PauseRequest, {"cancel": False}, required=False),
    ),
    Route("POST /resume", resume, rights="admin", answer="@Paused"),
)
