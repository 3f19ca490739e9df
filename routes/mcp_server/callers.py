"""The client behind a request: its principal, its name, and the questions that it can show to a person."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from starlette.requests import Request

from app.core.rules import WhenAbsent
from app.storage.principals import Principal
from routes.protocol.refusals import FORESEEN, refuse
from routes.services import Services, current_principal, services_of
from tools.mcp.results import line

TASKS = "io.modelcontextprotocol/tasks"
LONGEST_NAME = 60
HOUR = "%Y-%m-%d %H"
Context = ServerRequestContext[Any, Any]
Params = TypeVar("Params")
Answer = TypeVar("Answer")


class Caller(Struct, frozen=True):
    """`ctx` is the request as the SDK hands it to handlers, `request` that over HTTP."""

    ctx: Context
    request: Request
    services: Services
    principal: Principal

    @property
    def name(self) -> str:
        params = self.ctx.session.client_params
        return line(params.client_info.name)[:LONGEST_NAME] if params and params.client_info.name else "MCP client"

    @property
    def is_modern(self) -> bool:
        """Return True for a client of 2026-07-28 or later, which is answered with questions instead of being asked."""
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def takes_tasks(self) -> bool:
        declared = self.ctx.session.client_capabilities
        return self.is_modern and declared is not None and TASKS in (declared.extensions or {})

    @property
    def shows_forms(self) -> bool:
        """Return True if it can put a form before a person."""
        declared = self.ctx.session.client_capabilities
        forms = declared.elicitation if declared else None
        if forms is None or (forms.form is None and forms.url is not None):
            return False
        return self.is_modern or self.ctx.session.can_send_request

    @property
    def when_absent(self) -> WhenAbsent:
        """What becomes of calls that need approval: they wait where somebody can decide."""
        there = self.shows_forms or self.services.presence.has_page(self.principal.name)
        return WhenAbsent.WAIT if there else WhenAbsent.DENY

    @property
    def conversation(self) -> str:
        """The key of the session that has its direct calls: one for an hour, since each call reads it whole."""
        return f"mcp {self.name} {time.strftime(HOUR, time.gmtime())}"


def handling(
    handle: Callable[[Caller, Params], Awaitable[Answer]],
) -> Callable[[Context, Params], Awaitable[Any]]:
    """Return the SDK's handler: foreseen refusals become errors of the protocol, in the same words."""

    async def handler(ctx: Context, params: Params) -> Answer:
        request = ctx.request
        assert isinstance(request, Request)
        try:
            return await handle(Caller(ctx, request, services_of(request), current_principal(request)), params)
        except FORESEEN as error:
            refused = refuse(error)
            code = INVALID_PARAMS if refused.status in (400, 404, 422) else INTERNAL_ERROR
            raise MCPError(code, refused.message, {"code": refused.code}) from error

    return handler
