"""Trusted definitions of MCP servers' tools, kept in the store."""

from __future__ import annotations

import json
from collections.abc import Sequence

from app.storage.mcp import McpPinRemoved, McpPinRow, McpStore
from tools.mcp.model import Pin


class StoredPins:
    """A tools.mcp.model.PinStore. Every method raises StoreFailed."""

    def __init__(self, store: McpStore) -> None:
        self._store = store

    async def pins(self) -> Sequence[Pin]:
        rows = await self._store.mcp_pins()
        return [Pin(row.server, row.identity, row.tool, row.digest, json.loads(row.definition)) for row in rows]

    async def keep(self, pins: Sequence[Pin]) -> None:
        await self._store.write(
            [McpPinRow(pin.server, pin.tool, pin.identity, pin.digest, json.dumps(pin.definition)) for pin in pins]
        )

    async def forget(self, server: str, tools: Sequence[str] | None = None) -> None:
        gone = [McpPinRemoved(server)] if tools is None else [McpPinRemoved(server, tool) for tool in tools]
        await self._store.write(gone)
