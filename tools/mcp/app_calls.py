"""Calls of tools whose results are shown by an app (MCP Apps), and the requests of apps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tools.base.outcome import App, Result
from tools.base.tasks import retrieve
from tools.mcp.apps import Page, UnusablePage, allowed, page_of
from tools.mcp.call_context import CallContext
from tools.mcp.calls import ServerCall
from tools.mcp.connection.failure_reasons import leaves
from tools.mcp.results import line

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from tools.mcp.connection.session import McpSession

PAGE_S = 10.0  # for the page, behind the result
HELD = "it has changed since it was trusted, and an admin has to accept it"


class AppCall(ServerCall):
    """A call of a tool, which may name a page: that is read behind the result, and never fails the call."""

    async def _answer(self, result: CallToolResult, call: CallContext) -> Result:
        answer = await super()._answer(result, call)
        tool, config = self._server.catalogue.listed.get(self._tool), self._server.config
        has_page = tool is not None and bool(tool.page)
        if not (has_page or self._context.of_app) or self._session is None:
            return answer
        whole = result.model_dump(by_alias=True, exclude_none=True, exclude={"result_type"}, mode="json")
        if tool is None or self._context.of_app:
            return replace(answer, app=App(config.name, "", result=whole))
        try:
            page = await self._page(tool.page, self._session)
        except UnusablePage as problem:
            return replace(answer, app=App(config.name, tool.page, problem=str(problem)))
        app = App(
            config.name,
            page.uri,
            page.html,
            whole,
            allowed(page.csp, config.app_domains),
            [name for name in page.permissions if name in config.app_permissions],
            page.border,
        )
        return replace(answer, app=app)

    async def _page(self, uri: str, session: McpSession) -> Page:
        """Read a page, and take it. In a task that is never awaited, as all requests. Raises UnusablePage."""
        task = asyncio.create_task(self._read(uri, session))
        task.add_done_callback(retrieve)
        try:
            done, _ = await asyncio.wait({task}, timeout=PAGE_S)
        finally:
            task.cancel()
        if not done:
            raise UnusablePage(f"it did not come within {PAGE_S:g} s")
        if task.cancelled():
            raise UnusablePage("its server went away")
        if error := task.exception():
            cause = next(leaves(error))
            raise UnusablePage(str(cause) if isinstance(cause, UnusablePage) else line(str(cause) or repr(cause)))
        return task.result()

    async def _read(self, uri: str, session: McpSession) -> Page:
        call = CallContext(uri, self._context)
        result = await session.request(call, "resources/read", lambda client: client.read_resource(uri))
        page = page_of(uri, result, session.offers.pages.get(uri))
        if not await self._server.take_page(page.definition):
            raise UnusablePage(HELD)
        return page
