"""The manager of all MCP servers: their tools, their status, and calls to them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from parsing import Arguments
from tools.base.access import RemoteTask
from tools.base.outcome import Progress, Result
from tools.base.pause_check import CheckPaused, never_paused
from tools.base.rights import Origin, Risk
from tools.base.tasks import gather_all, import_in_thread
from tools.builtin.outbound_effects import call_sent
from tools.mcp.apps import CALLS, AppCall
from tools.mcp.call_context import CallContext
from tools.mcp.calls import FOLLOWING, ServerCall
from tools.mcp.definitions import Definition, definition
from tools.mcp.model import (
    Hooks,
    McpEvent,
    MemoryPinStore,
    NoSuchServer,
    Pin,
    PinStore,
    ServerChanged,
    ServerConfig,
    ServerState,
    Status,
    ToolsChanged,
)
from tools.mcp.offer_calls import OfferRequest
from tools.mcp.offers import OFFER_TOOLS, Feature, Offers
from tools.mcp.server import Server, ServerServices
from tools.mcp.status import status_of
from tools.mcp.trust_pins import Catalogue
from tools.process.process_tree import run_shielded
from tools.tool import BOTH, Context, Run, Tool

if TYPE_CHECKING:
    from mcp_types import GetPromptResult, ReadResourceResult


class Manager:
    """The servers by name. Only a call to a server and `close` wait for it."""

    def __init__(
        self,
        configs: Iterable[ServerConfig] = (),
        pins: PinStore | None = None,
        hooks: Hooks | None = None,
        private_hosts: Sequence[str] = (),
        check_paused: CheckPaused = never_paused,
    ) -> None:
        self._hooks = hooks or Hooks()
        self._services = ServerServices(
            self._hooks, pins or MemoryPinStore(), private_hosts, self._on_change, check_paused=check_paused
        )
        self._configs = list(configs)
        self._servers: dict[str, Server] = {}
        self._tools: list[Tool] | None = None
        self._news = asyncio.Event()
        self._discoveries: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Read the pins. Servers that are eager, or whose tools are unknown, start to connect in the background."""
        pins = await self._services.pins.pins()
        for config in self._configs:
            self._insert(config, [pin for pin in pins if pin.server == config.name])

    async def close(self) -> None:
        """End every server and what it started, all at once."""
        self._services.closed = True
        for task in self._discoveries:
            task.cancel()
        await asyncio.gather(*(server.stop() for server in self._servers.values()))

    async def stop_all(self) -> None:
        """End every connection and all that the servers have started. A call, or `resume`, starts one again."""
        running = [server for server in self._servers.values() if server.state is not ServerState.DISABLED]
        await gather_all(server.stop() for server in running if not server.config.problem)

    def resume(self) -> None:
        """After a pause: start eager servers, and connect to those whose tools are unknown."""
        for server in self._servers.values():
            if not server.config.problem:
                self._begin(server)

    def tools(self) -> Sequence[Tool]:
        """Return the tools that may be listed and called now: pinned definitions, also of stopped servers, by name."""
        if self._tools is None:
            servers = [server for server in self._servers.values() if server.state is not ServerState.DISABLED]
            found = [(name, server, one) for server in servers for name, one in server.listed()]
            # A public name that two tools claim is ambiguous: neither is listed.
            claimed = Counter(name for name, _, _ in found)
            rows = [self._tool(name, server, one) for name, server, one in found if claimed[name] == 1]
            self._tools = sorted(rows, key=lambda tool: tool.name)
        return self._tools

    def _tool(self, name: str, server: Server, one: Definition) -> Tool:
        server_name = server.config.name
        run = self._running(server_name, one.name, CALLS.get(one.name, AppCall))
        leaves = partial(call_sent, server_name, one.name)
        origin = Origin(server_name, one.name, one.hints)
        seen_by = tuple(one.ui.get("visibility", BOTH))
        more: dict[str, Any] = {"leaves": leaves, "origin": origin, "visibility": seen_by}
        return Tool(name, one.description, one.parameters, Risk.ADMIN, run, untrusted=True, **more)

    def _running(self, server_name: str, tool: str, call_of: type[ServerCall] = ServerCall) -> Run:
        async def run(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
            server = self._servers.get(server_name)
            if server is None:
                yield Result(ok=False, text=f"There is no MCP server {server_name} any more. Use other tools.")
                return
            async with aclosing(call_of(server, tool, arguments, context, self._hooks).run()) as updates:
                async for update in updates:
                    yield update

        return run

    async def cancel_task(self, task: RemoteTask, context: Context) -> None:
        """Request the end of a task that no call follows any more. Raises MCPError, Unavailable."""
        if server := self._servers.get(task.server):
            module = await import_in_thread(FOLLOWING)
            await module.TaskFollower(server, CallContext("", context), task, None).cancel()

    def instructions(self) -> dict[str, str]:
        """Return the instructions of the enabled servers that have any, as they were accepted."""
        enabled = (server for server in self._servers.values() if server.state is not ServerState.DISABLED)
        texts = {server.config.name: server.catalogue.instructions for server in enabled}
        return {name: text for name, text in texts.items() if text.strip()}

    def status(self) -> list[Status]:
        return [status_of(server) for _, server in sorted(self._servers.items())]

    def named(self, name: str) -> Status:
        return status_of(self._server(name))

    def _server(self, name: str) -> Server:
        try:
            return self._servers[name]
        except KeyError:
            raise NoSuchServer(name) from None

    async def add(self, config: ServerConfig) -> None:
        """Add a server, or replace the one of this name. Returns at once."""
        pins = [pin for pin in await self._services.pins.pins() if pin.server == config.name]
        if config.name in self._servers:
            # Disabled: a call that waits for the replaced server must not start it again.
            await run_shielded(self._servers.pop(config.name).stop(ServerState.DISABLED))
        self._insert(config, pins)

    def _insert(self, config: ServerConfig, pins: Sequence[Pin]) -> None:
        server = Server(config, Catalogue(config, pins, self._hooks.eased_by), self._services)
        self._servers[config.name] = server
        self._begin(server)
        self._on_change(server, None)

    def _begin(self, server: Server) -> None:
        if server.state is ServerState.DISABLED:
            return
        if server.config.eager:
            server.start()
        elif not server.catalogue.is_known:
            task = asyncio.create_task(server.discover())
            self._discoveries.add(task)
            task.add_done_callback(self._discoveries.discard)

    async def follow_pins(self) -> None:
        """Trust what another process has trusted of these servers meanwhile."""
        pins = await self._services.pins.pins()
        for server in self._servers.values():
            if server.catalogue.follow([pin for pin in pins if pin.server == server.config.name]):
                self._on_change(server, None)

    async def remove(self, name: str) -> None:
        """End a server and forget its pins. Raises NoSuchServer, as do all that take a name."""
        server = self._server(name)
        del self._servers[name]
        self._on_change(server, None)
        await run_shielded(server.stop(ServerState.DISABLED))  # `close` does not know it any more
        await self._services.pins.forget(name)

    async def reconnect(self, name: str) -> None:
        """Reconnect at once, without backoff."""
        server = self._server(name)
        if server.state is not ServerState.DISABLED:
            await server.stop()
            server.start()

    async def approve(self, name: str, tool: str | None = None, digest: str | None = None) -> list[str]:
        """Trust held definitions as they are now, one or all of a server; return their names.

        `digest` is that of the definition that was reviewed. Raises HeldChanged.
        """
        server = self._server(name)
        approved = server.catalogue.approve(tool, digest)
        await server.save()
        if approved:
            self._on_change(server, ToolsChanged(name, tuple(one for one in approved if one)))
        return approved

    def logs(self, name: str) -> list[str]:
        """Return the last 200 lines of the server's stderr, its log messages and the events of its connection."""
        return self._server(name).log.lines()

    async def settled(self, name: str, seconds: float) -> Status:
        """Wait until a server is not connecting any more, and its tools are known if it is reachable."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._server(name).is_settled:
                    await self.changed()
        return self.named(name)

    def unseen(self) -> list[str]:
        """Return the names of the enabled servers whose tools have never been listed."""
        return [name for name, server in sorted(self._servers.items()) if server.is_unseen]

    def sample(self, name: str, tool: str) -> Tool:
        """Return a tool as the server may have it, to decide on before the server's tools are known."""
        server = self._server(name)
        return self._tool(server.public(tool), server, definition({"name": tool}))

    def offer_tool(self, name: str, feature: Feature) -> Tool:
        """Return the host's tool for resources or prompts of a server, to decide on."""
        server = self._server(name)
        return self._tool(server.offer_name(feature), server, OFFER_TOOLS[feature])

    async def offers(self, name: str, context: Context) -> Offers:
        """Return the resources and prompts of a server, connecting if need be. Raises NoSuchServer, RequestFailed."""
        offers: Offers = await OfferRequest(self._server(name), "list", context, self._hooks).answer()
        return offers

    async def read_resource(self, name: str, uri: str, context: Context) -> ReadResourceResult:
        """Raises NoSuchServer, RequestFailed."""
        request = OfferRequest(self._server(name), "resources/read", context, self._hooks)
        result: ReadResourceResult = await request.answer(lambda client: client.read_resource(uri))
        return result

    async def prompt(self, name: str, prompt: str, arguments: Mapping[str, str], context: Context) -> GetPromptResult:
        """Raises NoSuchServer, RequestFailed."""
        request = OfferRequest(self._server(name), "prompts/get", context, self._hooks)
        result: GetPromptResult = await request.answer(lambda client: client.get_prompt(prompt, dict(arguments)))
        return result

    def begin_first_wait(self, names: Iterable[str], seconds: float) -> list[str]:
        """Connect to unseen servers, all at once; return those to wait for, at most `seconds` since the first wait."""
        servers = (server for name in names if (server := self._servers.get(name)))
        return [server.config.name for server in servers if server.is_unseen and server.begin_first_wait(seconds)]

    async def first_wait(self, names: Iterable[str]) -> None:
        """Wait until these servers are connected or have failed, or until the time for that is over."""
        while ends := [s.first_wait_ends for name in names if (s := self._servers.get(name)) and s.is_awaited]:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(filter(None, ends)) - time.monotonic()):
                    await self.changed()

    async def changed(self) -> None:
        """Wait until `status` or `tools` change."""
        await self._news.wait()

    def _on_change(self, server: Server, changes: ToolsChanged | None) -> None:
        self._tools = None
        updates, self._news = self._news, asyncio.Event()
        updates.set()
        if self._hooks.on_event:
            event: McpEvent = changes or ServerChanged(status_of(server))
            self._hooks.on_event(event)
