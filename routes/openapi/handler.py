"""`GET /openapi.json`: made at the first request, and kept with the application."""

from __future__ import annotations

import asyncio
import json

from starlette.requests import Request
from starlette.responses import Response

from routes.access.authentication import OPENAPI
from routes.protocol.route import Route, tagged


async def show_openapi(request: Request) -> Response:
    """This document. It says nothing of the installation: any client may read it."""
    from routes.openapi.document import document  # a server that is never asked for it does not load its tables

    state = request.app.state
    if not hasattr(state, "openapi"):
        rows = [route.row for route in await request.app.all_routes()]
        state.openapi = await asyncio.to_thread(lambda: json.dumps(document(rows)).encode())
    return Response(state.openapi, media_type="application/json")


ROUTES = tagged(
    "Server",
    Route(f"GET {OPENAPI}", show_openapi, rights="open", answer="object"),
)
