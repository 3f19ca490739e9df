"""Configuration of run time: endpoints, MCP servers and their pins, states of the server."""

from __future__ import annotations

from msgspec.structs import replace

from app.storage.changes import Change
from app.storage.endpoints import EndpointRemoved, EndpointRow
from app.storage.mcp import McpPinRemoved, McpPinRow, McpServerRemoved, McpServerRow, McpTrustRemoved, McpTrustRow
from app.storage.sql.columns import Write, delete, select, upsert, write
from app.storage.sql.rows import Rows
from app.storage.state import StateRow

WRITES: dict[type[Change], Write] = {
    EndpointRow: upsert("endpoints", EndpointRow, "name"),
    EndpointRemoved: delete("endpoints", EndpointRemoved),
    McpServerRow: upsert("mcp_servers", McpServerRow, "name"),
    McpServerRemoved: delete("mcp_servers", McpServerRemoved),
    McpPinRow: upsert("mcp_pins", McpPinRow, "server", "tool"),
    McpPinRemoved: write("DELETE FROM mcp_pins WHERE server = ? AND tool = COALESCE(?, tool)", "server", "tool"),
    McpTrustRow: upsert("mcp_trust", McpTrustRow, "server", "tool"),
    McpTrustRemoved: write("DELETE FROM mcp_trust WHERE server = ? AND tool = COALESCE(?, tool)", "server", "tool"),
    StateRow: upsert("state", StateRow, "name"),
}
ENDPOINTS = select(EndpointRow, "endpoints", "ORDER BY at, name")
MCP_SERVERS = select(McpServerRow, "mcp_servers", "ORDER BY at, name")
MCP_PINS = select(McpPinRow, "mcp_pins", "")
MCP_TRUST = select(McpTrustRow, "mcp_trust", "ORDER BY server, tool")


class SqlConfiguration(Rows):
    async def endpoints(self) -> list[EndpointRow]:
        return await self._rows(ENDPOINTS)

    async def mcp_servers(self) -> list[McpServerRow]:
        rows = await self._rows(MCP_SERVERS)  # SQLite has no booleans
        return [row if row.enabled is None else replace(row, enabled=bool(row.enabled)) for row in rows]

    async def mcp_pins(self) -> list[McpPinRow]:
        return await self._rows(MCP_PINS)

    async def mcp_trust(self) -> list[McpTrustRow]:
        rows = await self._rows(MCP_TRUST)
        return [row if row.untrusted is None else replace(row, untrusted=bool(row.untrusted)) for row in rows]

    async def state(self, name: str) -> str | None:
        rows = await self._all("SELECT value FROM state WHERE name = ?", name)
        return rows[0][0] if rows else None
