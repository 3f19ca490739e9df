"""The SDK's server with our handlers, in both eras of the protocol. To import it takes a second and 50 MB."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types import NotificationParams
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.mcp.servers import McpServers
from app.storage.principals import Principal
from routes.mcp_server.callers import TASKS, Context, handling
from routes.mcp_server.resources import list_resources, list_templates, read_resource
from routes.mcp_server.tasks import TaskParams, UpdateParams, cancel_task, get_task, update_task
from routes.mcp_server.tools import call_tool, list_tools
from routes.services import Services
from tools.base.tasks import in_background

MOST_BYTES = 1 << 30  # of a body: the route has limits of its own
IDLE_S = 1800.0  # after which a session of the older era ends
MOST_SESSIONS = 1_000


class GatewayServer(Server[None]):
    """`sessions` are those of the older era, by their ids, to be notified of changes; `listen` notifies the others."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self.bus)
        self.sessions: dict[str, ServerSession] = {}
        super().__init__(
            "dragoman",
            version=version("dragoman"),
            title="dragoman",
            get_tool_input_schema=lambda _: None,
            on_list_tools=handling(list_tools),
            on_call_tool=handling(call_tool),
            on_list_resources=handling(list_resources),
            on_list_resource_templates=handling(list_templates),
            on_read_resource=handling(read_resource),
            on_subscriptions_listen=self.listen,
        )
        self.extensions = {TASKS: {}}
        self.add_request_handler("tasks/get", TaskParams, handling(get_task))
        self.add_request_handler("tasks/update", UpdateParams, handling(update_task))
        self.add_request_handler("tasks/cancel", TaskParams, handling(cancel_task))
        self.add_notification_handler("notifications/initialized", NotificationParams, self._note_session)

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *more: Any, **named: Any
    ) -> InitializationOptions:
        return super().create_initialization_options(NotificationOptions(tools_changed=True), *more, **named)

    async def _note_session(self, ctx: Context, _: NotificationParams) -> None:
        assert isinstance(ctx.request, Request)
        self.sessions[ctx.request.headers[MCP_SESSION_ID_HEADER]] = ctx.session
        if len(self.sessions) > MOST_SESSIONS:
            del self.sessions[next(iter(self.sessions))]

    async def announce_forever(self, servers: McpServers) -> None:
        """Tell all clients when tools come or go."""
        tools = servers.tools()
        while True:
            await servers.manager.changed()
            if servers.tools() is not tools:
                tools = servers.tools()
                await self.bus.publish(ToolsListChanged())
                for session in list(self.sessions.values()):
                    await session.send_tool_list_changed()


@asynccontextmanager
async def opened(services: Services) -> AsyncGenerator[ASGIApp, None]:
    server = GatewayServer()
    manager = StreamableHTTPSessionManager(
        server, session_idle_timeout=IDLE_S, max_sessions=MOST_SESSIONS, max_request_body_size=MOST_BYTES
    )

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        """Let a session be used by the principal that has begun it only."""
        principal: Principal = scope["state"]["principal"]
        name = principal.member or principal.name
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=name, scopes=[]))
        await manager.handle_request(scope, receive, send)

    async with manager.run(), in_background(server.announce_forever(services.mcp), "mcp list_changed"):
        try:
            yield handle
        finally:
            server.listen.close()
