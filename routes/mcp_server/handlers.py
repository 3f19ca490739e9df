"""POST, GET and DELETE /mcp: streamable HTTP of the Model Context Protocol, which the SDK speaks."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.runs.connections import OpenStream
from routes.protocol.route import Body, Route, tagged
from routes.protocol.sse import END, NOTHING, expire
from routes.services import current_principal, services_of

BODY = Body({"jsonrpc": "text", "method": "text"}, {"jsonrpc": "2.0", "id": 1, "method": "ping"})


class ApplicationResponse(Response):
    """The answer of another application, which is cut off when its place is closed."""

    def __init__(self, place: OpenStream, application: ASGIApp) -> None:
        self.background = None
        self._place = place
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = False

        async def sent(message: Message) -> None:
            nonlocal is_open
            await send(message)
            if message["type"] != "http.response.start":
                is_open = message.get("more_body", False)
            elif any(value.startswith(b"text/event-stream") for _, value in message["headers"]):
                is_open = True
                await send(NOTHING)  # a head waits for the first event otherwise

        with self._place:
            self._place.check()
        try:
            async with asyncio.timeout(None) as until:
                self._place.cut = partial(expire, until)
                await self._application(scope, receive, sent)
        except TimeoutError:
            if not until.expired():
                raise
        finally:
            self._place.leave()
        if is_open:
            await send(END)


async def serve(request: Request) -> Response:
    """An MCP server: `ask_agent`, your tools, and your conversations and documents as resources.

    POST takes one message and answers with JSON or a stream. For clients of 2025-11-25 and before GET opens the stream
    of a session and DELETE ends it. See [dragoman as an MCP server](mcp.md#dragoman-as-an-mcp-server).
    """
    services = services_of(request)
    with services.presence.place(current_principal(request)) as place:
        return ApplicationResponse(place, await services.mcp_server.get(services))


ROUTES = tagged(
    "Clients of other APIs",
    *(
        Route(
            f"{method} /mcp",
            serve,
            rights="user",
            statuses=(200, 202),
            errors=(400, 404, 405, 406, 409),
            body=BODY if method == "POST" else None,
            media=("application/json", "text/event-stream"),
            foreign_errors=True,
        )
        for method in ("POST", "GET", "DELETE")
    ),
)
