"""Requests for a server's resources, prompts and skills."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from mimetypes import guess_type
from typing import Any

from mcp import Client, MCPError
from mcp_types import (
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    PaginatedRequest,
    PaginatedRequestParams,
    PaginatedResult,
    ReadResourceResult,
    TextContent,
)
from msgspec.structs import replace
from pydantic import RootModel, ValidationError

from tools.mcp.connection.extensions import SKILLS
from tools.mcp.definitions import MAX_TEXT, Definition, UnusableDefinition
from tools.mcp.offers import MAX_LISTED, Offers, listing, offers_of
from tools.mcp.skills import FILE, fault_of, skill_file

PAGES = 50

Fetch = Callable[..., Awaitable[PaginatedResult]]  # of one page, from `cursor` on


class _Skills(PaginatedResult):
    skills: list[RootModel[Any]]  # one that is no object does not cost the others


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

    async def skill_page(cursor: str | None) -> _Skills:
        request = PaginatedRequest[str](method="skills/list", params=PaginatedRequestParams(cursor=cursor))
        return await client.session.send_request(request, _Skills)

    resources = await listed(client.list_resources, "resources") if has.resources else ()
    templates = await listed(client.list_resource_templates, "resource_templates") if has.resources else ()
    prompts = await listed(client.list_prompts, "prompts") if has.prompts else ()
    skills = await listed(skill_page, "skills") if SKILLS in (has.extensions or ()) else ()
    offers = offers_of(resources, templates, prompts)
    return replace(offers, skills=[{"name": "skills", "skill": one} for one in skills if isinstance(one, dict)])


def resource_result(given: ReadResourceResult | None, offers: Offers) -> CallToolResult:
    """Return a resource as the result of a call; without one the list of those that there are."""
    return CallToolResult(content=_blocks(given) if given else [TextContent(text=listing(offers))])


async def skill_result(
    skills: Mapping[str, Definition], name: str, listing: str, on_change: Callable[[], None], client: Client
) -> CallToolResult:
    """Return a skill, or a file of it, as the result of a call. Raises UnusableDefinition if it is not pinned so."""
    if not name:
        return CallToolResult(content=[TextContent(text=listing)])
    if not (found := skill_file(skills, name)):
        raise UnusableDefinition("there is no such skill or file; a changed one waits until a person approves it")
    one, path = found
    uri = f"{one.name}/{path}"
    result = await client.read_resource(uri)
    if fault := await asyncio.to_thread(fault_of, one, path, result.contents):
        on_change()
        raise UnusableDefinition(f"{fault}; a skill that has changed waits until a person approves it")
    pinned = {"uri": uri, "mime_type": guess_type(path)[0], "meta": None}  # only the content has a digest
    result.contents = [sent.model_copy(update=pinned) for sent in result.contents]
    beside = ", ".join(name for name in one.pinned["files"] if path == FILE != name)[:MAX_TEXT]
    note = [TextContent(text=f"[Its files, which read_skill shows by name/path: {beside}]")] if beside else []
    return CallToolResult(content=[*_blocks(result), *note])


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
