"""MCP servers that were added or switched at run time, and the tool definitions that were trusted."""

from __future__ import annotations

from typing import Protocol

from app.storage.changes import Change, ChangeWriter


class McpServerRow(Change, frozen=True):
    """An MCP server as it was configured at run time; a later row of its name replaces it.

    `entry`: JSON as in the file, None for a server that is in the file. `enabled`: None for the entry's own value.
    """

    name: str
    entry: str | None
    enabled: bool | None
    by: str
    at: float


class McpServerRemoved(Change, frozen=True):
    """The server has no configuration of run time any more."""

    name: str


class McpPinRow(Change, frozen=True):
    """The trusted definition of an MCP server's tool; `definition` is JSON. A later one replaces it."""

    server: str
    tool: str
    identity: str
    digest: str
    definition: str


class McpPinRemoved(Change, frozen=True):
    """The pin of one tool is removed, or (None) all pins of a server."""

    server: str
    tool: str | None = None


class McpTrustRow(Change, frozen=True):
    """A person's declaration of an MCP server (`tool` is empty), or of a tool of it, as trusted.

    It is for the server of this `identity`. None leaves a value as it is. `arguments`: JSON of the columns by name. A
    later one replaces it.
    """

    server: str
    tool: str
    identity: str
    role: str | None
    risk: str | None
    untrusted: bool | None
    by: str
    at: float
    arguments: str | None = None


class McpTrustRemoved(Change, frozen=True):
    """The declaration of one tool (or, if empty, of the server) is removed, or (None) all of a server."""

    server: str
    tool: str | None = None


class McpStore(ChangeWriter, Protocol):
    async def mcp_servers(self) -> list[McpServerRow]:
        """All of them, oldest first."""

    async def mcp_pins(self) -> list[McpPinRow]: ...

    async def mcp_trust(self) -> list[McpTrustRow]: ...
