"""Resources and prompts of MCP servers, for principals that may use the server's tools."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.core.rules import ApprovalMode
from app.core.strict_model import StrictModel
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Query, Route, tagged
from routes.services import Services, current_principal, services_of
from tools.base.escape_invisible import visible
from tools.mcp.model import NoSuchServer
from tools.mcp.offers import MAX_ARGUMENTS, MAX_URI, Feature
from tools.mcp.results import MAX_TEXT, piece_of
from tools.tool import Context
from tools.toolbox import Refuse

if TYPE_CHECKING:
    from mcp_types import GetPromptResult, ReadResourceResult

MAX_VALUE = 20_000  # characters of an argument
FROM = "[From the prompt {prompt} of the MCP server {server}]"


class PromptRequest(StrictModel):
    """The body of POST /mcp/servers/{name}/prompts/{prompt}, which may be empty."""

    arguments: dict[str, str] = Field(default_factory=dict, max_length=MAX_ARGUMENTS)


async def _server(request: Request, feature: Feature) -> tuple[Services, str, Context]:
    """Return the server that is named, for a principal who may use it: the gate decides as on the server's tools.

    Raises NoSuchServer. A call that a model would have to ask for is a person's own here.
    """
    services, principal, name = services_of(request), current_principal(request), request.path_params["name"]
    tool = services.mcp.trust.classification.of(services.mcp.manager.offer_tool(name, feature))
    gate = await services.factory.current_gate(principal, ApprovalMode.SANDBOXED)
    if isinstance(gate.decide(tool), Refuse):
        raise NoSuchServer(name)
    return services, name, Context(services.settings.workspace, principal=principal.name)


async def list_resources(request: Request) -> Response:
    """The resources of a server.

    For principals that may use its tools: `resources` (`uri`, `name`, `description`, `mime_type`, `size`), `templates`
    (`uri_template`, ...), `notes` (what was left out). Connects to the server if need be. See
    [resources](mcp.md#resources-and-prompts).
    """
    services, name, context = await _server(request, "resources")
    offers = await services.mcp.manager.offers(name, context)
    rows = {"resources": offers.resources, "templates": offers.templates, "notes": offers.notes}
    return ASCIIResponse(services.redactor.redact_value(to_builtins(rows)))


async def read_resource(request: Request) -> Response:
    """The contents of a resource.

    `uri`, `mime_type`, and `text` or `data` (base64) of each part; 502 if the server cannot answer.
    """
    services, name, context = await _server(request, "resources")
    uri = request.query_params.get("uri", "")
    if not 0 < len(uri) <= MAX_URI:
        raise Refused(422, "invalid_request", f"uri: send the URI of a resource, at most {MAX_URI:,} characters.")
    result = await services.mcp.manager.read_resource(name, uri, context)
    contents = await asyncio.to_thread(_contents, result)
    size = sum(len(one.get("text", "")) + len(one.get("data", "")) * 3 // 4 for one in contents)
    if size > services.settings.max_attachment_bytes:
        most = services.settings.max_attachment_bytes
        raise Refused(413, "too_long", f"The resource has {size:,} bytes, at most {most:,} can be read at once.")
    return ASCIIResponse({"contents": await asyncio.to_thread(services.redactor.redact_value, contents)})


def _contents(result: ReadResourceResult) -> list[dict[str, Any]]:
    """May take some 100 ms: call it in a thread."""
    return [_content(one.uri, one.mime_type, one) for one in result.contents]


def _content(uri: str, mime_type: str | None, content: Any) -> dict[str, Any]:
    fields = {"uri": uri, "mime_type": mime_type or ""}
    if (text := getattr(content, "text", None)) is not None:
        return fields | {"text": text}
    try:
        data = base64.b64decode(content.blob, validate=False)
    except (binascii.Error, ValueError):
        return fields | {"text": "", "problem": "Its data are damaged."}
    return fields | {"data": base64.b64encode(data).decode()}


async def list_prompts(request: Request) -> Response:
    """The prompts of a server.

    `name`, `title`, `description`, `arguments` (`name`, `description`, `required`). Connects to the server if need be.
    """
    services, name, context = await _server(request, "prompts")
    offers = await services.mcp.manager.offers(name, context)
    return ASCIIResponse(
        services.redactor.redact_value(to_builtins({"prompts": offers.prompts, "notes": offers.prompt_notes}))
    )


async def get_prompt(request: Request) -> Response:
    """The messages of a prompt.

    `role` and `text` of each, and `text`, which holds all of them and names their origin, to be sent as a message.
    """
    services, name, context = await _server(request, "prompts")
    body = await read_fields(request, PromptRequest, empty=True)
    if long := [key for key, value in body.arguments.items() if len(value) > MAX_VALUE]:
        raise Refused(422, "invalid_request", f"arguments.{long[0][:80]}: at most {MAX_VALUE:,} characters.")
    prompt = request.path_params["prompt"]
    result = await services.mcp.manager.prompt(name, prompt, body.arguments, context)
    messages = await _messages(result)
    head = FROM.format(prompt=ascii(prompt)[1:-1], server=ascii(name)[1:-1])
    # Of several each has its role, because they are sent as one.
    texts = [one["text"] if len(messages) == 1 else f"{one['role']}: {one['text']}" for one in messages]
    text = "\n\n".join([head, *texts])
    shown = {"description": visible(result.description or ""), "messages": messages, "text": text[:MAX_TEXT]}
    return ASCIIResponse(services.redactor.redact_value(shown))


async def _messages(result: GetPromptResult) -> list[dict[str, str]]:
    """Return the messages without invisible characters: a person sends them as a message, and has to see all of it."""
    pieces = [(one.role, await piece_of(one.content)) for one in result.messages]
    return [{"role": role, "text": visible(text[:MAX_TEXT])} for role, text in pieces]


ROUTES = tagged(
    "MCP servers",
    Route(
        "GET /mcp/servers/{name:path}/resources",
        list_resources,
        rights="owner",
        answer={"resources": ["object"], "templates": ["object"], "notes": ["text"]},
        errors=(502,),
    ),
    Route(
        "GET /mcp/servers/{name:path}/resources/read",
        read_resource,
        rights="owner",
        answer={"contents": ["object"]},
        errors=(422, 502),
        query=(Query("uri", "the URI of the resource", required=True),),
    ),
    Route(
        "GET /mcp/servers/{name:path}/prompts",
        list_prompts,
        rights="owner",
        answer={"prompts": ["object"]},
        errors=(502,),
    ),
    Route(
        "POST /mcp/servers/{name:path}/prompts/{prompt:path}",
        get_prompt,
        rights="owner",
        answer={"messages": ["object"], "text": "text"},
        errors=(502,),
        body=Body(PromptRequest, {"arguments": {"name": "Ann"}}, required=False),
    ),
)
