"""/mcp/servers: which MCP servers there are and how they are, and what admins do about it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import to_builtins
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from app.core.strict_model import StrictModel
from app.mcp.servers import McpServers
from app.mcp.sign_ins import CALLBACK
from routes.http.mcp.trust import DistrustRequest, TrustRequest, trust_fields
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Query, Route, tagged
from routes.services import Services, current_principal, services_of
from tools.base.escape_invisible import visible
from tools.mcp.model import SignInFailed, Status

ACTIONS = ("enable", "disable", "reconnect", "approve", "trust", "distrust")
MAX_REASON = 300  # characters of what a page says


class ServerRequest(StrictModel):
    """The body of POST /mcp/servers: a name, and the fields of an entry in `mcp.json`."""

    name: str = Field(min_length=1, max_length=128)
    type: Literal["stdio", "http", "sse"] | None = None
    url: str | None = Field(default=None, max_length=4096)
    headers: dict[str, str] | None = Field(default=None, max_length=64)
    command: str | None = Field(default=None, max_length=4096)
    args: list[str] | None = Field(default=None, max_length=256)
    env: dict[str, str] | None = Field(default=None, max_length=256)
    eager: bool | None = None
    includeTools: list[str] | None = Field(default=None, max_length=1024)
    excludeTools: list[str] | None = Field(default=None, max_length=1024)
    holdNewTools: bool | None = None
    timeout: float | None = Field(default=None, gt=0)
    timeouts: dict[str, float] | None = None

    def entry(self) -> dict[str, Any]:
        return self.model_dump(exclude={"name"}, exclude_none=True)


class ApproveRequest(StrictModel):
    """The body of POST /mcp/servers/{name}/approve, which may be empty: one tool, or all that are held.

    `digest` is that of the tool as it was looked at: what the server offers since then is not approved.
    """

    tool: str | None = None
    digest: str | None = None

    @model_validator(mode="after")
    def _of_a_tool(self) -> ApproveRequest:
        if self.digest is not None and self.tool is None:
            raise ValueError("digest belongs to one tool; send tool as well")
        return self


def shown(servers: McpServers, status: Status) -> dict[str, Any]:
    fields: dict[str, Any] = to_builtins(status)
    return fields | trust_fields(servers, status.name)


async def list_servers(request: Request) -> Response:
    """MCP servers.

    By name: state, error, tools, held tools, what is declared (`trust`), each tool's classification with its sources
    (`classified`), pid, protocol, connect time, restarts, next attempt, tokens. `problem` says why nothing of the file
    counts.
    """
    servers = services_of(request).mcp
    rows = sorted(servers.status(), key=lambda status: status.name)
    return ASCIIResponse({"servers": [shown(servers, row) for row in rows], "problem": servers.problem or None})


async def add_server(request: Request) -> Response:
    """Add a server.

    `name` and `url`, or the other fields of an entry; a server that was added so is changed. Answers at once; it
    connects meanwhile.
    """
    servers = services_of(request).mcp
    body = await read_fields(request, ServerRequest, plain=True)
    return ASCIIResponse(
        shown(servers, await servers.add(body.name, body.entry(), current_principal(request).name)), 201
    )


async def show_server(request: Request) -> Response:
    """An MCP server."""
    servers = services_of(request).mcp
    return ASCIIResponse(shown(servers, servers.named(request.path_params["name"])))


async def delete_server(request: Request) -> Response:
    """Remove a server."""
    await services_of(request).mcp.remove(request.path_params["name"], current_principal(request).name)
    return Response(status_code=204)


async def server_logs(request: Request) -> Response:
    """The last lines of a server. 200 of its standard error and status changes."""
    return ASCIIResponse({"lines": services_of(request).mcp.manager.logs(request.path_params["name"])})


async def callback(request: Request) -> Response:
    """The redirect target of an OAuth sign-in. The browser has no token of ours; `state` names the sign-in."""
    given, servers = request.query_params, services_of(request).mcp
    state = given.get("state", "")
    try:
        if "code" in given:
            name = await _signed_in(services_of(request), state, given["code"], given.get("iss"))
            return PlainTextResponse(f"You are signed in to {name}. You can close this page.\n")
        reason = given.get("error_description") or given.get("error") or "the sign-in page returned no code"
        name = servers.not_signed_in(state, visible(reason[:MAX_REASON]))
    except SignInFailed as failure:
        raise Refused(400, "sign_in_failed", str(failure)) from None
    return PlainTextResponse(f"You are not signed in to {name}: {visible(reason[:MAX_REASON])}\n", 403)


async def _signed_in(services: Services, state: str, code: str, issuer: str | None) -> str:
    """The name of the server; the sign-in may wait at another server of ours. Raises SignInFailed."""
    try:
        return await services.mcp.signed_in(state, code, issuer)
    except SignInFailed:
        name = await services.replication.signed_in_elsewhere(state, code, issuer)
        if name is None:
            raise
        return name


async def act_on_server(request: Request) -> Response:
    """enable, disable, reconnect, approve, trust or distrust.

    `approve` takes one `tool`, or everything that is held; with the `digest` of the definition that you reviewed, 409
    if it has changed since. `trust` takes `tool`, `role`, `risk` and `untrusted`, without `tool` for the whole server;
    see [declaring trust](mcp.md#declaring-trust). `distrust` takes `tool`. Answers with how the server is now.
    """
    servers, by, name = services_of(request).mcp, current_principal(request).name, request.path_params["name"]
    more: dict[str, Any] = {}
    match request.path_params["action"]:
        case "enable" | "disable" as action:
            await servers.set_enabled(name, action == "enable", by)
        case "reconnect":
            await servers.reconnect(name, by)
        case "approve":
            body = await read_fields(request, ApproveRequest, empty=True)
            more["approved"] = await servers.approve(name, body.tool, by, body.digest)
        case "trust":
            declared = await read_fields(request, TrustRequest, empty=True)
            await servers.declare(name, declared.tool, declared.trust, by)
        case "distrust":
            withdrawn = await read_fields(request, DistrustRequest, empty=True)
            await servers.withdraw_trust(name, withdrawn.tool, by)
        case other:
            message = f"There is no action {other[:40]!a}; there are {', '.join(ACTIONS)}."
            raise Refused(404, "not_found", message)
    return ASCIIResponse(shown(servers, servers.named(name)) | more)


ROUTES = tagged(
    "MCP servers",
    Route(
        f"GET {CALLBACK}",
        callback,
        rights="open",
        errors=(403,),
        query=(Query("state", "the sign-in"), Query("code", "its code"), Query("error", "why there is none")),
        media=("text/plain",),
    ),
    Route("GET /mcp/servers", list_servers, rights="admin", answer={"servers": ["@McpServer"], "problem": "text?"}),
    Route(
        "POST /mcp/servers",
        add_server,
        rights="admin",
        answer="@McpServer",
        statuses=(201,),
        errors=(409,),
        body=Body(ServerRequest, {"name": "docs", "url": "https://mcp.example.com/mcp"}),
    ),
    # Names may have a slash, as `github.com/owner/repo`.
    Route("GET /mcp/servers/{name:path}/logs", server_logs, rights="admin", answer={"lines": ["text"]}),
    Route(
        "POST /mcp/servers/{name:path}/{action}",
        act_on_server,
        rights="admin",
        answer="@McpServer",
        errors=(409,),
        body=Body(
            {"tool?": "text", "digest?": "text", "role?": "text", "risk?": "text"}, {"tool": "search"}, required=False
        ),
    ),
    Route("GET /mcp/servers/{name:path}", show_server, rights="admin", answer="@McpServer"),
    Route("DELETE /mcp/servers/{name:path}", delete_server, rights="admin", errors=(409,)),
)
