"""MCP Apps (SEP-1865): pages of a server that show results, with those domains that an admin allows them."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tools.base.outcome import Progress, Result
from tools.base.permit import canonical
from tools.mcp.call_context import CallContext
from tools.mcp.calls import ServerCall
from tools.mcp.definitions import ORIGIN, PAGE_TYPE, Definition, sha256
from tools.mcp.offer_calls import OfferRequest, RequestFailed, ResourceCall, SkillCall
from tools.mcp.offers import OFFER_TOOLS
from tools.mcp.results import line
from tools.mcp.server import Unavailable
from tools.tool import SKILL_REQUEST

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, ReadResourceResult

MAX_PAGE = 8 << 20  # characters of a page, and of a result that it gets
MAX_DOMAINS = 64  # of each kind
PAGE_S = 10.0  # for the page, behind the result
DOMAINS = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")


class UnusablePage(Unavailable):
    """The page cannot be shown. The message has the reason."""


class App(Struct, frozen=True):
    """A page, the domains that it asks for or has, and the result that it shows; nothing if there is a `problem`."""

    server: str
    uri: str
    html: str = ""
    csp: Mapping[str, Sequence[str]] = {}
    border: bool | None = None
    result: Mapping[str, Any] = {}
    problem: str = ""

    @property
    def definition(self) -> Definition:
        """The page as it is pinned."""
        pinned = {"name": self.uri, "html": sha256(self.html), "characters": len(self.html), "csp": self.csp}
        return Definition(self.uri, pinned, sha256(canonical(pinned)), "", {})

    def allowed(self, globs: Sequence[str]) -> dict[str, list[str]]:
        """Return the domains that an admin has allowed; a socket to a host counts as a connection to it."""

        def fits(origin: str) -> bool:
            return any(fnmatchcase(origin.replace("wss://", "https://", 1), glob) for glob in globs)

        return {kind: list(filter(fits, asked)) for kind, asked in self.csp.items()}


def app_of(server: str, uri: str, result: ReadResourceResult) -> App:
    """Return the page that a server has given. Raises UnusablePage."""
    found = next((one for one in result.contents if str(one.uri) == uri), None)
    if found is None:
        raise UnusablePage("its server has no such page")
    if (found.mime_type or "").lower().replace(" ", "") != PAGE_TYPE:
        raise UnusablePage(f"the type of its page is {line(found.mime_type or 'not stated')}, not {PAGE_TYPE}")
    try:
        blob = base64.b64decode(getattr(found, "blob", "")).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        raise UnusablePage("the data of its page are damaged") from None
    html: str = getattr(found, "text", blob)
    if not 0 < len(html) <= MAX_PAGE:
        raise UnusablePage(f"its page has {len(html):,} characters, and 1 to {MAX_PAGE:,} can be shown")
    asked = _object(_object(found.meta).get("ui"))
    csp, border = _object(asked.get("csp")), asked.get("prefersBorder")
    domains = {kind: _origins(csp.get(kind)) for kind in DOMAINS}
    return App(server, uri, html, domains, border if isinstance(border, bool) else None)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _origins(asked: object) -> list[str]:
    plain = (one.rstrip("/") for one in asked if isinstance(one, str)) if isinstance(asked, list) else ()
    return [one for one in dict.fromkeys(plain) if ORIGIN.fullmatch(one)][:MAX_DOMAINS]


class AppCall(ServerCall):
    """A call of a tool, which may name a page: that is read behind the result, and never fails the call."""

    _whole: CallToolResult | None = None

    async def run(self) -> AsyncGenerator[Progress | Result, None]:
        async with aclosing(super().run()) as updates:
            async for update in updates:  # the last one is the result, and ends the call's place at the server
                last = update
                if isinstance(update, Progress):
                    yield update
        yield replace(last, app=await self._app(self._whole)) if isinstance(last, Result) and self._whole else last

    async def _answer(self, result: CallToolResult, call: CallContext) -> Result:
        self._whole = result
        return await super()._answer(result, call)

    async def _app(self, result: CallToolResult) -> App | None:
        tool, server = self._server.catalogue.listed.get(self._tool), self._server.config.name
        uri = str(tool.ui.get("resourceUri", "")) if tool and not self._context.of_app else ""
        if not (uri or self._context.of_app):
            return None
        app = App(server, uri)
        request = OfferRequest(self._server, "resources/read", self._context, self._hooks)
        try:
            async with asyncio.timeout(PAGE_S):
                app = await request.answer(partial(self._read, uri)) if uri else app
        except (RequestFailed, TimeoutError) as failure:
            why = str(failure).partition(". Try ")[0]  # the rest is for models
            app = App(server, uri, problem=why or f"its page did not come within {PAGE_S:g} s")
        return replace(app, result=_whole(result))

    async def _read(self, uri: str, client: Client) -> App:
        config = self._server.config
        app = app_of(config.name, uri, await client.read_resource(uri))
        if not await self._server.take_page(app.definition):
            raise UnusablePage("its page has changed since it was trusted, and an admin has to accept it")
        return replace(app, csp=app.allowed(config.app_domains))


class AppRead(ResourceCall):
    """A call for a resource, which an app gets as the server has given it."""

    async def _answer(self, result: CallToolResult, call: CallContext) -> Result:
        answer, server = await super()._answer(result, call), self._server.config.name
        return replace(answer, app=App(server, "", result=_whole(self.given))) if self._context.of_app else answer


def _whole(result: CallToolResult | ReadResourceResult | None) -> dict[str, Any]:
    return result.model_dump(by_alias=True, exclude_none=True, exclude={"result_type"}, mode="json") if result else {}


CALLS: Mapping[str, type[ServerCall]] = {OFFER_TOOLS["resources"].name: AppRead, SKILL_REQUEST: SkillCall}
