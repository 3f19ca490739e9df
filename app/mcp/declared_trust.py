"""Trust in MCP servers: what people have declared, kept in the store, and what the file declares.

A declaration of a person is for the server that they saw: it ends when the server's command, its folder or its URL
changes. A tool that changes, or that comes later, is held as any other is that would get fewer checks
(tools.mcp.trust_pins).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from app.core.rules import ToolRule
from app.policy.classification import SERVER, Classification
from app.storage.mcp import McpPinRemoved, McpPinRow, McpStore, McpTrustRemoved, McpTrustRow
from tools.base.rights import Column, Risk, Role, Trust
from tools.mcp.model import Pin, ServerConfig
from tools.mcp.trust_pins import identity_of
from tools.tool import Tool

logger = logging.getLogger(__name__)


class NotDeclared(Exception):
    """Nothing is declared of it, or it is not known."""


class ServerUnseen(Exception):
    """The tools of the server are not known yet, so no person can have looked at them."""


class DeclaredTrust:
    """The declarations in force. `classification` has them for the gate."""

    def __init__(self, store: McpStore, rules: Sequence[ToolRule] = (), search_tool: str = "") -> None:
        self.classification = Classification(rules, search_tool)
        self._store = store
        self._rows: dict[tuple[str, str], McpTrustRow] = {}

    def row(self, server: str, tool: str = SERVER) -> McpTrustRow | None:
        return self._rows.get((server, tool))

    def tools(self, server: str) -> list[str]:
        """Return the server's tools that a person has declared something of."""
        return [tool for name, tool in self._rows if name == server and tool]

    async def take(self, configs: Mapping[str, ServerConfig], removed: Sequence[str] = ()) -> None:
        """Put in force what the store and the file say; end what was declared of other servers. Raises StoreFailed.

        An entry with a problem ends nothing: it may be mended.
        """
        rows = {(row.server, row.tool): row for row in await self._store.mcp_trust()}
        usable = {name: identity_of(config) for name, config in configs.items() if not config.problem}
        ended = {
            *removed,
            *(row.server for row in rows.values() if usable.get(row.server, row.identity) != row.identity),
        }
        self._rows = {key: row for key, row in rows.items() if row.server in usable and row.server not in ended}
        of_servers = [(name, SERVER, config.trust) for name, config in configs.items()]
        of_tools = [(name, tool, one) for name, config in configs.items() for tool, one in config.tool_trust.items()]
        self.classification.declare(
            {key: trust_of(row) for key, row in self._rows.items()},
            {(name, tool): trust for name, tool, trust in [*of_servers, *of_tools] if trust is not None},
        )
        if gone := sorted(ended & {row.server for row in rows.values()}):
            logger.info("what was declared of the MCP servers %s has ended: they were changed or removed", gone)
            await self._store.write([McpTrustRemoved(server) for server in gone])

    def declared(self, config: ServerConfig, tools: Iterable[Tool], tool: str, trust: Trust, by: str) -> McpTrustRow:
        """Return the row that declares a server, or (by its own or its public name) one of the listed `tools`.

        Raises ServerUnseen, NotDeclared.
        """
        tool = _listed_tool(config.name, tools, tool)
        role, risk = trust.role and str(trust.role), trust.risk and str(trust.risk)
        return McpTrustRow(
            config.name,
            tool,
            identity=identity_of(config),
            role=role,
            risk=risk,
            untrusted=trust.untrusted,
            by=by,
            at=time.time(),
            arguments=json.dumps(dict(trust.arguments)) if trust.arguments else None,
        )

    def withdrawn(self, server: str, tool: str) -> McpTrustRemoved:
        """Return the change that withdraws a declaration. Raises NotDeclared."""
        if (server, tool) not in self._rows:
            of = f"the tool {tool[:80]!a} of {server}" if tool else server
            raise NotDeclared(f"No declaration of trust exists for {of}. GET /mcp/servers shows what is declared.")
        return McpTrustRemoved(server, tool)


def _listed_tool(server: str, tools: Iterable[Tool], tool: str) -> str:
    """Return the tool's own name. A declaration is for what a person can have looked at."""
    names = {one.name: one.origin.tool for one in tools if one.origin and one.origin.server == server}
    if not names:
        raise ServerUnseen(f"The tools of {server} are not known: connect it, look at them, then declare trust.")
    if not tool or tool in names.values():
        return tool
    if tool not in names:
        raise NotDeclared(f"{server} lists no tool {tool[:80]!a}. GET /mcp/servers shows its tools.")
    return names[tool]


def trust_of(row: McpTrustRow) -> Trust:
    given = json.loads(row.arguments) if row.arguments else {}
    arguments = {name: Column(column) for name, column in given.items()} or None
    return Trust(Role(row.role) if row.role else None, Risk(row.risk) if row.risk else None, row.untrusted, arguments)


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
