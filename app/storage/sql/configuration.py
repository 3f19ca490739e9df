"""Configuration of run time: endpoints, served models, MCP servers and their pins, profiles, secrets, states."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.endpoints import EndpointRemoved, EndpointRow
from app.storage.mcp import McpPinRemoved, McpPinRow, McpServerRemoved, McpServerRow, McpTrustRemoved, McpTrustRow
from app.storage.people.secrets import SecretRemoved, SecretRow, SecretUsed
from app.storage.profiles import ProfileRemoved, ProfileRow
from app.storage.served_models import ServedModelRemoved, ServedModelRow
from app.storage.sql.columns import Write, delete, select, upsert, write
from app.storage.sql.rows import Rows
from app.storage.state import StateRow

WRITES: dict[type[Change], Write] = {
    EndpointRow: upsert("endpoints", EndpointRow, "name"),
    EndpointRemoved: delete("endpoints", EndpointRemoved),
    ServedModelRow: upsert("served_models", ServedModelRow, "name"),
    ServedModelRemoved: delete("served_models", ServedModelRemoved),
    McpServerRow: upsert("mcp_servers", McpServerRow, "name"),
    McpServerRemoved: delete("mcp_servers", McpServerRemoved),
    McpPinRow: upsert("mcp_pins", McpPinRow, "server", "tool"),
    McpPinRemoved: write("DELETE FROM mcp_pins WHERE server = ? AND tool = COALESCE(?, tool)", "server", "tool"),
    McpTrustRow: upsert("mcp_trust", McpTrustRow, "server", "tool"),
    McpTrustRemoved: write("DELETE FROM mcp_trust WHERE server = ? AND tool = COALESCE(?, tool)", "server", "tool"),
    ProfileRow: upsert("profiles", ProfileRow, "owner", "name"),
    ProfileRemoved: delete("profiles", ProfileRemoved),
    SecretRow: upsert("secrets", SecretRow, "name"),
    SecretRemoved: delete("secrets", SecretRemoved),
    SecretUsed: write("UPDATE secrets SET used = ? WHERE name = ?", "used", "name"),
    StateRow: upsert("state", StateRow, "name"),
}
ENDPOINTS = select(EndpointRow, "endpoints", "ORDER BY at, name")
SERVED_MODELS = select(ServedModelRow, "served_models", "ORDER BY at, name")
MCP_SERVERS = select(McpServerRow, "mcp_servers", "ORDER BY at, name")
MCP_PINS = select(McpPinRow, "mcp_pins", "")
MCP_TRUST = select(McpTrustRow, "mcp_trust", "ORDER BY server, tool")
PROFILE = select(ProfileRow, "profiles", "WHERE owner = ? AND name = ?")
PROFILES = select(ProfileRow, "profiles", "WHERE owner = ? ORDER BY name")
SECRETS = select(SecretRow, "secrets", "ORDER BY at, name")
SETS_OPTIONS = "SELECT 1 FROM sessions WHERE options <> '{}' LIMIT 1"


class SqlConfiguration(Rows):
    async def endpoints(self) -> list[EndpointRow]:
        return await self._rows(ENDPOINTS)

    async def served_models(self) -> list[ServedModelRow]:
        return await self._rows(SERVED_MODELS)

    async def mcp_servers(self) -> list[McpServerRow]:
        return await self._rows(MCP_SERVERS)

    async def mcp_pins(self) -> list[McpPinRow]:
        return await self._rows(MCP_PINS)

    async def mcp_trust(self) -> list[McpTrustRow]:
        return await self._rows(MCP_TRUST)

    async def profile(self, owner: str, name: str) -> ProfileRow | None:
        return await self._row(PROFILE, owner, name)

    async def profiles(self, *owners: str) -> list[ProfileRow]:
        return [row for owner in owners for row in await self._rows(PROFILES, owner)]

    async def secrets(self) -> list[SecretRow]:
        return await self._rows(SECRETS)

    async def sets_options(self) -> bool:
        return bool(await self._all(SETS_OPTIONS))

    async def state(self, name: str) -> str | None:
        rows = await self._all("SELECT value FROM state WHERE name = ?", name)
        return rows[0][0] if rows else None
