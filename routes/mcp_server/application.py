"""The SDK's server with our handlers, in both eras of the protocol. To import it takes a second and 50 MB."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.caching import CACHEABLE_METHODS
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    NotificationParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    RequestParams,
)
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.storage.principals import Principal
from routes.mcp_server.calls import TASKS, Caller, TaskParams, call_tool, cancel_task, get_task, list_tools, update_task
from routes.mcp_server.resources import list_resources, list_templates, read_resource
from routes.protocol.refusals import FORESEEN, refuse
from routes.services import Services, current_principal, services_of
from tools.base.tasks import in_background

IDLE_S, MOST_SESSIONS = 1800.0, 1_000  # of the older era
NOT_KEPT = {"ttlMs": 0, "cacheScope": "private"}  # by caches
Context = ServerRequestContext[Any, Any]
Handle = Callable[[Caller, Any], Awaitable[dict[str, Any]]]
HANDLERS: Mapping[str, tuple[type[RequestParams], Handle]] = {
    "tools/list": (PaginatedRequestParams, list_tools),
    "tools/call": (CallToolRequestParams, call_tool),
    "resources/list": (PaginatedRequestParams, list_resources),
    "resources/templates/list": (PaginatedRequestParams, list_templates),
    "resources/read": (ReadResourceRequestParams, read_resource),
    "tasks/get": (TaskParams, get_task),
    "tasks/update": (TaskParams, update_task),
    "tasks/cancel": (TaskParams, cancel_task),
}


async def handled(handle: Handle, ctx: Context, params: Any) -> dict[str, Any]:
    """Handle a request: foreseen refusals become errors of the protocol, in the same words."""
    assert isinstance(ctx.request, Request)
    try:
        caller = Caller(ctx, ctx.request, services_of(ctx.request), current_principal(ctx.request))
        kept = NOT_KEPT if ctx.method in CACHEABLE_METHODS else {}
        return {"resultType": "complete"} | kept | await handle(caller, params)
    except FORESEEN as error:
        refused = refuse(error)
        code = INVALID_PARAMS if refused.status in (400, 404, 422) else INTERNAL_ERROR
        raise MCPError(code, refused.message, {"code": refused.code}) from error


class GatewayServer(Server[Any]):
    """`sessions` are those of the older era, by their ids, to be notified of changes; `listen` notifies the others."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self.bus)
        self.sessions: dict[str, ServerSession] = {}
        super().__init__(
            "dragoman",
            version=version("dragoman"),
            get_tool_input_schema=lambda _: None,
            on_subscriptions_listen=self.listen,
        )
        self.extensions = {TASKS: {}}
        for method, (params, handle) in HANDLERS.items():
            self.add_request_handler(method, params, partial(handled, handle))
        self.add_notification_handler("notifications/initialized", NotificationParams, self._note_session)

    def create_initialization_options(self, *_: Any, **__: Any) -> InitializationOptions:
        return super().create_initialization_options(NotificationOptions(tools_changed=True))

    async def _note_session(self, ctx: Context, _: NotificationParams) -> None:
        assert isinstance(ctx.request, Request)
        self.sessions[ctx.request.headers[MCP_SESSION_ID_HEADER]] = ctx.session
        if len(self.sessions) > MOST_SESSIONS:
            del self.sessions[next(iter(self.sessions))]

    async def announce_forever(self, services: Services) -> None:
        """Announce to all clients when tools come or go."""
        tools = services.mcp.tools()
        while True:
            await services.mcp.manager.changed()
            if services.mcp.tools() is not tools:
                tools = services.mcp.tools()
                await self.bus.publish(ToolsListChanged())
                for session in list(self.sessions.values()):
                    await session.send_tool_list_changed()


@asynccontextmanager
async def hosted(server: Server[Any]) -> AsyncGenerator[ASGIApp, None]:
    manager = StreamableHTTPSessionManager(server, session_idle_timeout=IDLE_S, max_sessions=MOST_SESSIONS)

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        """Let a session be used only by the principal that has begun it."""
        principal: Principal = scope["state"]["principal"]
        scope["user"] = AuthenticatedUser(
            AccessToken(token="", client_id=principal.member or principal.name, scopes=[])
        )
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]  # RFC 9110, 5.5
        await manager.handle_request(scope, receive, send)

    async with manager.run():
        yield handle


@asynccontextmanager
async def opened(services: Services) -> AsyncGenerator[ASGIApp, None]:
    server = GatewayServer()
    async with hosted(server) as handle, in_background(server.announce_forever(services), "mcp list_changed"):
        try:
            yield handle
        finally:
            server.listen.close()
