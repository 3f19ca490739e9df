"""One session with a server, run by one task. An exception that the SDK lets escape ends this session only.

Importing this imports the SDK, which takes 0.8 s: `server` does it in a thread, at the first connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from importlib.metadata import version
from typing import Any, Literal, TypeVar

import mcp.client.session
from mcp import Client, MCPError
from mcp.client import Transport
from mcp_types import (
    CallToolResult,
    Implementation,
    LoggingMessageNotificationParams,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from tools.base.escape_invisible import visible
from tools.base.schemas import client_argument_error
from tools.base.tasks import retrieve
from tools.base.texts import shortened
from tools.mcp.call_context import CallContext, current_call
from tools.mcp.connection.elicitation import ElicitationHandler
from tools.mcp.connection.extensions import TASKS, declared
from tools.mcp.connection.http import LastFailure, client_for, transport_for
from tools.mcp.connection.offer_requests import list_offers, pages
from tools.mcp.connection.server_log import ServerLog
from tools.mcp.connection.stdio import Stdio
from tools.mcp.connection.traffic import Traffic, monitored
from tools.mcp.definitions import MAX_INSTRUCTIONS, MAX_TOOLS
from tools.mcp.model import Hooks, Operation, OperationEnd, ServerConfig
from tools.mcp.offers import Offers

ApprovalMode = Literal["auto", "legacy"]
Offer = Callable[[Sequence[dict[str, Any]], str, Offers], Coroutine[Any, Any, None]]
"""Takes the tools, the instructions, and what else a server offers now."""
V = TypeVar("V")

PROBE_S = 5.0  # some servers ignore unknown requests; then the legacy handshake is tried
LEAVE_S = 0.8  # for an orderly end of the session
LIST_S = 30.0
CALL = "tools/call"  # the method
OFFERS_S = 3.0  # for the lists of resources and prompts, with all their pages
CHANGES = (ToolListChangedNotification, ResourceListChangedNotification, PromptListChangedNotification)
_DEBOUNCE_S, _MOST_DEBOUNCE_S, _CALM_S = 0.1, 30.0, 10.0
_LOG_LINE = 500
_CLIENT_INFO = Implementation(name="dragoman", version=version("dragoman"))

mcp.client.session.DISCOVER_TIMEOUT_SECONDS = PROBE_S
# The SDK logs every unreadable message: a server must not be able to fill the log.
for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class McpSession:
    """One session; `run` is its whole life, in a task of its own."""

    def __init__(
        self,
        config: ServerConfig,
        mode: ApprovalMode,
        *,
        hooks: Hooks,
        private_hosts: Sequence[str],
        log: ServerLog,
        offer: Offer,
    ) -> None:
        self.settled = asyncio.Event()  # ready, or over before that
        self.ready = False
        self.gone = False
        self.why = ""  # it is over
        self.protocol = ""
        self.last_failure = LastFailure()
        self.traffic = Traffic(log.add)
        self.calls: set[CallContext] = set()
        self.offers = Offers()
        self._config = config
        self._mode: ApprovalMode = mode
        self._hooks = hooks
        self._private_hosts = private_hosts
        self._log = log
        self._offer = offer
        self._over = asyncio.Event()
        self.dirty = asyncio.Event()  # what it offers is listed again
        self._outputs: dict[str, dict[str, Any]] = {}
        self._stdio: Stdio | None = None
        self._client: Client | None = None
        self._background: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int | None:
        return self._stdio.child.pid if self._stdio else None

    @property
    def exit_code(self) -> int | None:
        return self._stdio.child.exit_code if self._stdio else None

    @property
    def is_modern(self) -> bool:
        return self.protocol in MODERN_PROTOCOL_VERSIONS

    def end(self, why: str = "") -> None:
        """Request the end; the task of `run` then ends soon."""
        self.why = self.why or why
        self._over.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._config.timeouts.start_s) as limit, self._entered() as client:
                self._client = client
                client.session.validate_tool_result = self.check  # type: ignore[method-assign]
                self.protocol = client.protocol_version
                await self._list(client)
                limit.reschedule(None)
                self.ready = True
                self.settled.set()
                self._start_background(client)
                try:
                    await self._over.wait()
                finally:
                    self._leave()
                    limit.reschedule(loop.time() + LEAVE_S)
        finally:
            self._leave()
            self.settled.set()

    def _leave(self) -> None:
        self.gone = True
        self.why = self.why or self.last_failure.message or "the connection ended"
        for task in self._background:
            task.cancel()
        for call in self.calls:
            call.lost = "" if call.task else self.why
            call.touch()

    def _entered(self) -> Client:
        return Client(
            monitored(self._transport(), self.traffic, lambda error: self.end(str(error))),
            mode=self._mode,
            cache=None,
            client_info=_CLIENT_INFO,
            extensions=declared(),
            message_handler=self._on_message,
            logging_callback=self._on_log,
            elicitation_callback=ElicitationHandler(self._config, self._hooks.elicit, self.calls)
            if self._hooks.elicit
            else None,
        )

    def _transport(self) -> Transport:
        if self._config.transport == "stdio":
            self._stdio = Stdio(self._config, self.traffic, self._log, self.end)
            return self._stdio
        auth = self._hooks.auth(self._config) if self._hooks.auth else None
        client = client_for(self._config, auth, self._private_hosts, self.last_failure, self.end)
        return transport_for(self._config, client)

    async def call_tool(self, call: CallContext, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool. Errors are raised as the SDK raises them; the caller cancels its task and never awaits it."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
            call.count += 1
            call.messages.append(": ".join(filter(None, (share, visible(message or "")[:_LOG_LINE]))))
            call.touch()

        return await self.request(
            call, CALL, lambda client: client.call_tool(call.tool, arguments, progress_callback=on_progress)
        )

    async def request(self, call: CallContext, method: str, send: Callable[[Client], Awaitable[V]]) -> V:
        """Make any other request, of this method. The caller cancels its task and never awaits it."""
        assert self._client is not None
        current_call.set(call)
        self.calls.add(call)
        try:
            observe = self._hooks.observe
            config = self._config
            if observe is None or not method:
                return await send(self._client)
            target = call.tool if method == CALL else ""
            with observe(
                Operation(config.name, config.url, self.protocol, method, target=target, context=call.context)
            ) as end:
                return await _ended(send(self._client), end)
        finally:
            if not call.task:  # else who follows it holds it
                self.calls.discard(call)

    def _start_background(self, client: Client) -> None:
        work = [self._relist(client)]
        if self.is_modern and any(self._announces_changes(client)):
            work.append(self._listen(client))
        for one in work:
            task = asyncio.create_task(one)
            self._background.add(task)
            task.add_done_callback(self._on_background_end)

    def _on_background_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self._log.add(f"Changes of its tools are not noticed any more: {error}")

    async def _relist(self, client: Client) -> None:
        """List the tools again on each change notification, with backoff while listing causes the next one."""
        loop = asyncio.get_running_loop()
        pause = _DEBOUNCE_S
        listed_at = loop.time()
        while True:
            await self.dirty.wait()
            pause = _DEBOUNCE_S if loop.time() - listed_at > _CALM_S else min(pause * 2, _MOST_DEBOUNCE_S)
            await asyncio.sleep(pause)
            self.dirty.clear()
            listed_at = loop.time()
            try:
                async with asyncio.timeout(LIST_S):
                    await self._list(client)
            except (MCPError, ValidationError, TimeoutError) as error:
                self._log.add(f"Its tools could not be listed again: {error or 'no answer'}")

    def _announces_changes(self, client: Client) -> list[bool]:
        """Return whether the server reports changes of its tools, prompts and resources."""
        has = client.server_capabilities
        return [bool(one and one.list_changed) for one in (has.tools, has.prompts, has.resources)]

    async def _listen(self, client: Client) -> None:
        tools, prompts, resources = self._announces_changes(client)
        async with client.listen(
            tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources
        ) as notifications:
            async for _ in notifications:
                self.dirty.set()

    async def _list(self, client: Client) -> None:
        try:
            found = await pages(client.list_tools, "tools", MAX_TOOLS)
        except MCPError:
            if client.server_capabilities.tools is not None:
                raise
            found = []  # it does not announce any
        self._outputs = {tool["name"]: tool["outputSchema"] for tool in found if "outputSchema" in tool}
        self.traffic.task_tools = {one["name"] for one in found if one.get("execution") == {"taskSupport": "required"}}
        instructions = shortened(visible(client.instructions or ""), MAX_INSTRUCTIONS)
        await self._list_offers(client)
        await self._offer(found[:MAX_TOOLS], instructions, self.offers)

    async def _list_offers(self, client: Client) -> None:
        """List resources and prompts. A server that does not answer has none: its tools do not wait for them.

        The task is never awaited: the SDK may take seconds to end it.
        """
        has = client.server_capabilities
        if not (has.resources or has.prompts):
            return
        task = asyncio.create_task(list_offers(client))
        done, _ = await asyncio.wait({task}, timeout=OFFERS_S)
        task.cancel()
        task.add_done_callback(retrieve)
        if not done:
            self._log.add(f"Its resources and prompts could not be listed within {OFFERS_S:g} s.")
        elif error := task.exception():
            self._log.add(f"Its resources and prompts could not be listed: {error}")
        else:
            self.offers = task.result()

    async def check(self, name: str, result: CallToolResult) -> None:
        """Replace the SDK's check, which discards the result, and has no time limit."""
        call = current_call.get()
        schema = self._outputs.get(name)
        if call is None or schema is None or result.is_error or TASKS in (result.meta or {}):
            return
        if result.structured_content is None:
            call.notes.append("The server promises structured content for this tool, and sent none.")
            return
        complaint = await asyncio.to_thread(client_argument_error, "the result", schema, result.structured_content)
        if complaint:
            call.notes.append("The structured content is not what the server promises for this tool.")

    async def _on_message(self, message: object) -> None:
        if isinstance(message, CHANGES):
            self.dirty.set()
        elif isinstance(message, Exception):
            self._log.add(f"A message could not be read: {str(message)[:_LOG_LINE]}")

    async def _on_log(self, params: LoggingMessageNotificationParams) -> None:
        self._log.add(f"{params.level}: {str(params.data)[:_LOG_LINE]}")


async def _ended(sent: Awaitable[V], end: OperationEnd) -> V:
    """Return the answer, with what became of it in the end of the operation."""
    try:
        result = await sent
    except MCPError as error:
        end.error, end.status_code = str(error.code), error.code
        raise
    if isinstance(result, CallToolResult) and result.is_error:
        end.error = "tool_error"
    return result
