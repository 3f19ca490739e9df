"""Requests for a server's resources and prompts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mcp import Client, MCPError
from mcp_types import (
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    PaginatedResult,
    ReadResourceResult,
    TextContent,
)
from pydantic import ValidationError

from tools.mcp.offers import MAX_LISTED, Offers, listing, offers_of

PAGES = 50

Fetch = Callable[..., Awaitable[PaginatedResult]]  # of one page, from `cursor` on


async def pages(fetch: Fetch, field: str, most: int) -> list[dict[str, Any]]:
    """Return the entries of all pages of a list, up to a few more than `most`."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    seen: set[str | None] = set()
    for _ in range(PAGES):
        page = await fetch(cursor=cursor)
        found += [one.model_dump(by_alias=True, exclude_none=True, mode="json") for one in getattr(page, field)]
        seen.add(cursor)
        cursor = page.next_cursor
        if not cursor or cursor in seen or len(found) > most:
            break
    return found


async def list_offers(client: Client) -> Offers:
    """Return what the server announces and lists; a list that cannot be had is empty."""
    has = client.server_capabilities

    async def listed(fetch: Fetch, field: str) -> Sequence[dict[str, Any]]:
        try:
            return await pages(fetch, field, MAX_LISTED)
        except (MCPError, ValidationError):  # it need not have each of them
            return ()

    resources = await listed(client.list_resources, "resources") if has.resources else ()
    templates = await listed(client.list_resource_templates, "resource_templates") if has.resources else ()
    prompts = await listed(client.list_prompts, "prompts") if has.prompts else ()
    return offers_of(resources, templates, prompts)


async def resource_result(client: Client, uri: object, offers: Offers) -> CallToolResult:
    """Return a resource as the result of a call; without `uri` the list of those that there are."""
    if not isinstance(uri, str) or not uri:
        return CallToolResult(content=[TextContent(text=listing(offers))])
    return CallToolResult(content=_blocks(await client.read_resource(uri)))


def _blocks(result: ReadResourceResult) -> list[ContentBlock]:
    """Return the contents as blocks of a result: pictures as such, so that a model can see them."""
    blocks: list[ContentBlock] = []
    for one in result.contents:
        kind, blob = one.mime_type or "", getattr(one, "blob", None)
        if blob is not None and kind.startswith("image/"):
            blocks.append(ImageContent(data=blob, mime_type=kind))
        else:
            blocks.append(EmbeddedResource(resource=one))
    return blocks
