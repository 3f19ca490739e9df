"""The trust in MCP servers and their tools: each tool's classification with its sources, declared and withdrawn."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import to_builtins
from pydantic import Field

from app.core.strict_model import StrictModel
from app.mcp.servers import McpServers
from tools.base.rights import Column, Risk, Role, Trust

MAX_TOOL_NAME = 1_000
MAX_ARGUMENTS = 200


class TrustRequest(StrictModel):
    """The body of POST /mcp/servers/{name}/trust, which may be empty: of the server, or of one tool of it."""

    tool: str = Field(default="", max_length=MAX_TOOL_NAME)
    role: Role | None = Field(default=None, strict=False)
    risk: Risk | None = Field(default=None, strict=False)
    untrusted: bool | None = None
    arguments: dict[Annotated[str, Field(max_length=MAX_TOOL_NAME)], Annotated[Column, Field(strict=False)]] | None = (
        Field(default=None, max_length=MAX_ARGUMENTS)
    )

    @property
    def trust(self) -> Trust:
        return Trust(self.role, self.risk, self.untrusted, self.arguments or None)


class DistrustRequest(StrictModel):
    """The body of POST /mcp/servers/{name}/distrust, which may be empty: of the server, or of one tool of it."""

    tool: str = Field(default="", max_length=MAX_TOOL_NAME)


def trust_fields(servers: McpServers, server: str) -> dict[str, Any]:
    """Return what is declared of a server, and each of its listed tools with the classification that holds now.

    `stale`: tools with a declaration that are not listed now.
    """
    trust = servers.trust
    listed = [(one.name, one.origin) for one in servers.tools() if one.origin and one.origin.server == server]
    rows = []
    for name, origin in listed:
        rights = to_builtins(trust.classification.rights(name, origin))
        hints = {hint: value for hint, value in to_builtins(origin.hints).items() if value is not None}
        rows.append(
            {"tool": origin.tool, "name": name, **rights, "hints": hints, **_declared(servers, server, origin.tool)}
        )
    known = {origin.tool for _, origin in listed}
    stale = [tool for tool in trust.tools(server) if tool not in known]
    return {"trust": _declared(servers, server) | {"stale": stale}, "classified": rows}


def _declared(servers: McpServers, server: str, tool: str = "") -> dict[str, Any]:
    """`declared` is a person's declaration, with who made it and when, and `file` that of the file."""
    row, (declared, of_file) = servers.trust.row(server, tool), servers.trust.classification.declarations(server, tool)
    of_person = to_builtins(declared) | {"by": row.by, "at": row.at} if row and declared else None
    return {"declared": of_person, "file": to_builtins(of_file)}
