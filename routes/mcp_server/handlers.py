"""POST, GET and DELETE /mcp: streamable HTTP of the Model Context Protocol, which the SDK speaks."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.runs.connections import OpenStream
from routes.protocol.raw_body import read_body
from routes.protocol.requests import body_limits
from routes.protocol.route import Body, Route, tagged
from routes.protocol.sse import END, expire
from routes.services import current_principal, services_of

METHODS = ("POST", "GET", "DELETE")
HEADERS = {
    "Mcp-Session-Id": "the session of a client of 2025-11-25 or before",
    "MCP-Protocol-Version": "the version of the protocol",
}
EXAMPLE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "example", "version": "1"},
    },
}


class ApplicationResponse(Response):
    """The answer of another application. It ends when its place is closed, and gives that back at its end."""

    def __init__(self, place: OpenStream, application: ASGIApp, body: bytes) -> None:
        self.background = None
        self._place = place
        self._application = application
        self._body: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def received() -> Message:
            return self._body.pop() if self._body else await receive()

        has_begun = False

        async def sent(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        with self._place:
            self._place.check()
        try:
            async with asyncio.timeout(None) as until:
                self._place.cut = partial(expire, until)
                await self._application(scope, received, sent)
        except TimeoutError:
            if not until.expired():
                raise
            if has_begun:
                await send(END)
        finally:
            self._place.leave()


async def serve(request: Request) -> Response:
    """An MCP server: `ask_agent`, your tools, and your conversations and documents as resources.

    POST takes one message and answers with JSON or a stream; GET opens the stream of a session's notifications and
    DELETE ends the session, both for clients of 2025-11-25 and before. See
    [dragoman as an MCP server](mcp.md#dragoman-as-an-mcp-server).
    """
    services = services_of(request)
    limits = body_limits(services.settings.max_message_bytes)
    body = await read_body(request, limits) if request.method == "POST" else b""
    with services.presence.place(current_principal(request)) as place:
        return ApplicationResponse(place, await services.mcp_server.get(services), body)


def _route(method: str) -> Route:
    return Route(
        f"{method} /mcp",
        serve,
        rights="user",
        statuses=(200, 202),
        body=Body({"jsonrpc": "text", "method": "text"}, EXAMPLE) if method == "POST" else None,
        headers=HEADERS,
        media=("application/json", "text/event-stream"),
        foreign_errors=True,
    )


ROUTES = tagged("Clients of other APIs", *map(_route, METHODS))
