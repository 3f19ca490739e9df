"""Calls for what a server offers besides tools: of the model for resources, and of people for resources and prompts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tools.base.outcome import Result
from tools.mcp.call_context import CallContext
from tools.mcp.calls import ServerCall
from tools.mcp.model import Hooks
from tools.mcp.server import Server
from tools.mcp.skills import skills_tool
from tools.tool import Context

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, ReadResourceResult

REQUESTS = "tools.mcp.connection.offer_requests"  # it imports the SDK, which a connection has done


class RequestFailed(Exception):
    """The server could not answer. The message says why."""


class ResourceCall(ServerCall):
    """A model's call for a resource, or for the list of them."""

    given: ReadResourceResult | None = None

    async def _request(self, call: CallContext) -> CallToolResult:
        session = await self._connected(call)
        requests = import_module(REQUESTS)
        uri = self._arguments.get("uri")

        async def read(client: Client) -> CallToolResult:
            self.given = await client.read_resource(uri) if uri else None
            result: CallToolResult = requests.resource_result(self.given, session.offers)
            return result

        result: CallToolResult = await session.request(call, "resources/read" if uri else "", read)  # the list is there
        return result


class SkillCall(ServerCall):
    """A model's call for an accepted skill, for a file of one, or for the list of them."""

    async def _request(self, call: CallContext) -> CallToolResult:
        session = await self._connected(call)
        skills, name = self._server.catalogue.skills, self._arguments.get("name", "")
        _, listing = skills_tool(self._server.config.name, skills)
        read = partial(import_module(REQUESTS).skill_result, skills, name, listing.description, session.dirty.set)
        result: CallToolResult = await session.request(call, "resources/read" if name else "", read)
        return result


class OfferRequest(ServerCall):
    """A person's request. It has the limits and the one safe retry of a call, and its answer as the server gave it."""

    def __init__(self, server: Server, method: str, context: Context, hooks: Hooks) -> None:
        super().__init__(server, method, {}, context, hooks)
        self._send: Callable[[Client], Awaitable[Any]] | None = None
        self._given: Any = None

    async def answer(self, send: Callable[[Client], Awaitable[Any]] | None = None) -> Any:
        """Return the server's answer; without `send` what it offers. Raises RequestFailed."""
        self._send = send
        result = Result(ok=False, text="no answer")
        async with aclosing(self.run()) as updates:
            async for update in updates:
                result = update if isinstance(update, Result) else result
        if not result.ok:
            raise RequestFailed(result.text)
        return self._given

    async def _request(self, call: CallContext) -> Any:
        session = await self._connected(call)
        return await session.request(call, self._tool, self._send) if self._send else session.offers

    async def _answer(self, result: Any, call: CallContext) -> Result:
        self._given = result
        return Result(ok=True, text="")
