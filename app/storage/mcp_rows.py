"""What the store keeps of MCP servers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class McpServerRow:
    """What was said of an MCP server at run time; a later row of its name replaces it.

    `entry`: JSON as in the file, None for a server that is in the file. `enabled`: None for what the entry says.
    """

    name: str
    entry: str | None
    enabled: bool | None
    by: str
    at: float


@dataclass(frozen=True, slots=True)
class McpServerGone:
    """Nothing was said of this MCP server, or does not count any more."""

    name: str


@dataclass(frozen=True, slots=True)
class McpPinRow:
    """A definition of an MCP server's tool that was trusted; `definition` is JSON. A later one replaces it."""

    server: str
    tool: str
    identity: str
    digest: str
    definition: str


@dataclass(frozen=True, slots=True)
class McpPinGone:
    """Pins that do not count any more: of one tool, or (None) all of a server."""

    server: str
    tool: str | None = None
