"""One call of a server's tool, from the request to the result, with its timeouts and one safe retry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from parsing import Arguments
from tools.base.access import OVER, RemoteTask
from tools.base.outcome import PROGRESS_LATEST_S, PROGRESS_SOONEST_S, Progress, Result, ToolFailed
from tools.base.tasks import import_in_thread, retrieve, wait_at_most
from tools.base.texts import without_surrogates
from tools.mcp.call_context import CallContext
from tools.mcp.connection.failure_reasons import leaves
from tools.mcp.model import Hooks, Timeouts
from tools.mcp.results import line, pictures_of, result_text
from tools.mcp.server import Server, Unavailable
from tools.tool import Context

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from tools.mcp.connection.session import McpSession
    from tools.mcp.connection.task_following import TaskFollower

FOLLOWING = "tools.mcp.connection.task_following"  # it imports the SDK
POLL_S = 60.0  # at most passes between two polls of a task
_MANY = 400  # characters of a server's error message
_SESSION_LOST = ("session not found", "session terminated", "not initialized")


class _Retry(Struct, frozen=True):
    """The server provably never received the call: it is retried once, on a new connection."""

    why: str


class ServerCall:
    """One call. It runs in a task of its own that is cancelled and never awaited: the SDK may take seconds to end,
    and no server decides when a call is over."""

    def __init__(self, server: Server, tool: str, arguments: Arguments, context: Context, hooks: Hooks) -> None:
        self._server = server
        self._tool = tool
        self._arguments = without_surrogates(arguments)
        self._context = context
        self._hooks = hooks
        self._limits: Timeouts = server.config.tool_timeouts.get(tool, server.config.timeouts)
        self._total_s = min(self._limits.total_s, context.time_limit_s)
        self._idle_s = self._limits.idle_s
        self._began = time.monotonic()
        self._session: McpSession | None = None
        self._follower: TaskFollower | None = None
        self._status = context.task.status if context.task else ""  # of the task, as it is stored

    async def run(self) -> AsyncGenerator[Progress | Result, None]:
        """Yield progress, and at the end the result."""
        server = self._server
        try:
            async with asyncio.timeout(self._total_s):
                await server.slots.acquire()
        except TimeoutError:
            yield self._failed("unavailable", f"{server.config.name} is busy: too many calls wait for it.")
            return
        server.calls += 1
        try:
            async with aclosing(self._attempts()) as updates:
                async for update in updates:
                    yield update
        finally:
            server.calls -= 1
            server.used_at = time.monotonic()
            if self._follower is None:
                server.slots.release()

    async def _attempts(self) -> AsyncGenerator[Progress | Result, None]:
        for is_last in (False, True):
            call = CallContext(self._tool, self._context)
            task = asyncio.create_task(self._request(call))
            task.add_done_callback(partial(_ended, call))
            over = False
            try:
                while not over:
                    over = await self._wait(task, call)
                    if not over:
                        yield self._progress(call)
                outcome = await self._outcome(task, call)
            finally:
                task.cancel()
            if isinstance(outcome, Result):
                yield outcome
                return
            if self._session:
                self._server.drop(self._session, outcome.why)
            if is_last:
                yield self._failed("unavailable", f"{outcome.why}. The call did not run.")

    async def _request(self, call: CallContext) -> CallToolResult:
        if self._context.task:
            await import_in_thread(FOLLOWING)
            return await self._follow(call, self._context.task)
        session = await self._connected(call)
        name = self._tool
        if name in self._server.catalogue.held:
            raise Unavailable(
                f"{self._server.public(name)} is held back: its definition has changed, and the change is not approved "
                "yet. Use another tool."
            )
        if name not in self._server.catalogue.listed:
            raise Unavailable(f"{self._server.config.name} has no tool {line(name)} any more. Use another one.")
        result = await session.call_tool(call, self._arguments)
        task = import_module(FOLLOWING).begun(self._server.config.name, result)
        return await self._follow(call, task) if task else result

    async def _follow(self, call: CallContext, task: RemoteTask) -> CallToolResult:
        """Follow the task that the call has become. It takes no slot: between polls nothing is under way."""
        self._follower = import_module(FOLLOWING).TaskFollower(self._server, call, task, self._on_task)
        self._server.slots.release()
        return await self._follower.result()

    async def _on_task(self, task: RemoteTask) -> None:
        """Take the limits of a task, which has a total of its own, and store each new status."""
        self._session = self._server.session  # it may be another one by now
        self._idle_s = self._limits.idle_s + POLL_S
        ends = task.ttl_s if task.ttl_s and task.status not in OVER else float("inf")  # what is over has its result
        left_s = max(0.0, task.since + ends - time.time())
        self._total_s = min(self._context.time_limit_s, time.monotonic() - self._began + left_s)
        if self._context.keep_task and task.status != self._status:
            self._status = task.status
            await self._context.keep_task(task)

    async def _connected(self, call: CallContext) -> McpSession:
        """Return the connection. From here on it is the server's time."""
        self._session = await self._server.connected(min(self._limits.start_s, self._total_s))
        call.touch()
        return self._session

    async def _wait(self, task: asyncio.Task[CallToolResult], call: CallContext) -> bool:
        """Wait until the call is over, or progress is due; return whether it is over."""
        shown, reported_at = call.count, time.monotonic()
        while not task.done() and not call.lost:
            now = time.monotonic()
            due = reported_at + (PROGRESS_SOONEST_S if call.count != shown else PROGRESS_LATEST_S)
            ends = self._deadline(call)
            if now >= ends:
                return True
            if now >= due:
                return False
            call.woken.clear()
            await wait_at_most(min(due, ends) - now, call.woken)
        return True

    def _deadline(self, call: CallContext) -> float:
        if call.open_questions:
            return float("inf")
        total = self._began + call.question_s + self._total_s
        return min(total, call.alive_at + self._idle_s) if self._session or self._follower else total

    def _progress(self, call: CallContext) -> Progress:
        return Progress(round(time.monotonic() - self._began, 3), tail=tuple(call.messages), lines=call.count)

    async def _outcome(self, task: asyncio.Task[CallToolResult], call: CallContext) -> Result | _Retry:
        name = self._server.config.name
        if not task.done() and call.lost:
            return self._lost(call, call.lost)
        if not task.done():
            return self._overdue(call)
        if task.cancelled():
            return self._lost(call, call.lost or "its connection ended")
        error = task.exception()
        if error is None:
            return await self._answer(task.result(), call)
        cause = next(leaves(error))
        if isinstance(cause, Unavailable):
            return self._failed("unavailable", str(cause))
        message = line(str(cause))[:_MANY] or type(cause).__name__
        if self._follower:
            end = "" if isinstance(cause, ToolFailed) else " Its outcome is unknown. Check before doing it again."
            return self._failed("protocol_error", f"{name} did not finish the task of this call: {message}.{end}")
        if self._is_session_lost(message, call) or call.lost or (self._session and self._session.gone):
            return self._lost(call, call.lost or message)
        if call.unsent:
            return self._lost(call, self._last_failure() or message)
        if call.status:
            message = self._last_failure() or message
        return self._failed(
            "protocol_error", f"{name} could not answer: {message}. Try other arguments or another tool."
        )

    def _is_session_lost(self, message: str, call: CallContext) -> bool:
        lost = call.status == 404 or any(words in message.lower() for words in _SESSION_LOST)
        if lost and not call.sent:
            call.unsent = True
        return lost

    def _last_failure(self) -> str:
        return self._session.last_failure.message if self._session else ""

    def _lost(self, call: CallContext, why: str) -> Result | _Retry:
        if call.unsent and not call.sent:
            return _Retry(f"The MCP server {self._server.config.name} could not be reached: {line(why)}")
        return self._failed(
            "unavailable",
            f"The MCP server {self._server.config.name} went away during the call: {line(why)}. "
            "The call was not repeated, because it may have run: look before you repeat it.",
        )

    def _overdue(self, call: CallContext) -> Result:
        total = time.monotonic() - self._began - call.question_s >= self._total_s
        bound = f"{self._total_s:g} s" if total else f"{self._idle_s:g} s without a sign of life"
        return self._failed(
            "timeout",
            f"{self._server.config.name} did not answer within {bound}. It was asked to stop, but the call may still "
            "run there: look before you repeat it.",
        )

    def _failed(self, outcome: str, text: str) -> Result:
        self._server.log.add(f"{line(self._tool)}: {outcome}: {text}")
        return Result(ok=False, text=text)

    async def _answer(self, result: CallToolResult, call: CallContext) -> Result:
        text = await result_text(result, call.notes, self._keep)
        if result.is_error:
            self._server.log.add(f"{line(self._tool)}: tool_error: {text[:_MANY]}")
        structured = result.structured_content
        return Result(ok=not result.is_error, text=text, pictures=pictures_of(result), structured=structured)

    async def _keep(self, content: bytes) -> str:
        return await self._hooks.keep(self._context, content) if self._hooks.keep else "not kept"


def _ended(call: CallContext, task: asyncio.Task[Any]) -> None:
    retrieve(task)
    call.woken.set()
