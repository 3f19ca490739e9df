"""One call of a server's tool, from the question to what the model is told, whatever the server does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from parsing import Arguments
from tools.base.outcome import Progress, Result
from tools.mcp.call_context import Moment
from tools.mcp.connection.failure_reasons import leaves
from tools.mcp.connection.repair import whole
from tools.mcp.model import Hooks, Timeouts
from tools.mcp.results import line, result_text
from tools.mcp.server import Server, Unavailable
from tools.tool import Context

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from tools.mcp.connection.session import Link

_SOONEST_S, _LATEST_S = 0.2, 2.0
_MANY = 400  # characters of what a server says went wrong
_SESSION_LOST = ("session not found", "session terminated", "not initialized")


@dataclass(frozen=True, slots=True)
class _Again:
    """The server never had the call: it is made once more, on a new connection."""

    why: str


class Call:
    """One call. Its work is a task of its own that is cancelled and never waited for: the SDK may take seconds for
    its own end, and no server decides when a call is over."""

    def __init__(self, server: Server, tool: str, arguments: Arguments, context: Context, hooks: Hooks) -> None:
        self._server = server
        self._tool = tool
        self._arguments = whole(arguments)
        self._context = context
        self._hooks = hooks
        self._limits: Timeouts = server.config.tool_timeouts.get(tool, server.config.timeouts)
        self._total_s = min(self._limits.total_s, context.time_limit_s)
        self._began = time.monotonic()
        self._link: Link | None = None

    async def run(self) -> AsyncGenerator[Progress | Result, None]:
        """How it goes, and in the end what came of it."""
        server = self._server
        try:
            async with asyncio.timeout(self._total_s):
                await server.slots.acquire()
        except TimeoutError:
            yield self._failed("unavailable", f"{server.config.name} is busy: too many calls wait for it.")
            return
        server.calls += 1
        try:
            async with aclosing(self._tried()) as news:
                async for seen in news:
                    yield seen
        finally:
            server.calls -= 1
            server.used_at = time.monotonic()
            server.slots.release()

    async def _tried(self) -> AsyncGenerator[Progress | Result, None]:
        for is_last in (False, True):
            moment = Moment(self._tool, self._context)
            task = asyncio.create_task(self._asked(moment))
            task.add_done_callback(partial(_ended, moment))
            over = False
            try:
                while not over:
                    over = await self._waited(task, moment)
                    if not over:
                        yield self._progress(moment)
                outcome = await self._outcome(task, moment)
            finally:
                task.cancel()
            if isinstance(outcome, Result):
                yield outcome
                return
            if self._link:
                self._server.drop(self._link, outcome.why)
            if is_last:
                yield self._failed("unavailable", f"{outcome.why}. The call did not run.")

    async def _asked(self, moment: Moment) -> CallToolResult:
        self._link = await self._server.connected(min(self._limits.start_s, self._total_s))
        name = self._tool
        if name in self._server.catalogue.held:
            raise Unavailable(
                f"{self._server.public(name)} is held back: its definition has changed, and nobody has approved that "
                "yet. Use another tool."
            )
        if name not in self._server.catalogue.listed:
            raise Unavailable(f"{self._server.config.name} has no tool {line(name)} any more. Use another one.")
        moment.stir()  # from here on it is the server's time
        return await self._link.call(moment, self._arguments)

    async def _waited(self, task: asyncio.Task[CallToolResult], moment: Moment) -> bool:
        """Whether the call is over, after the time in which there was nothing to tell."""
        shown, told_at = moment.count, time.monotonic()
        while not task.done() and not moment.lost:
            now = time.monotonic()
            due = told_at + (_SOONEST_S if moment.count != shown else _LATEST_S)
            ends = self._deadline(moment)
            if now >= ends:
                return True
            if now >= due:
                return False
            moment.stirred.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(due, ends) - now):
                    await moment.stirred.wait()
        return True

    def _deadline(self, moment: Moment) -> float:
        if moment.asking:
            return float("inf")
        total = self._began + moment.asked_s + self._total_s
        return min(total, moment.alive_at + self._limits.idle_s) if self._link else total

    def _progress(self, moment: Moment) -> Progress:
        return Progress(round(time.monotonic() - self._began, 3), tail=tuple(moment.messages), lines=moment.count)

    async def _outcome(self, task: asyncio.Task[CallToolResult], moment: Moment) -> Result | _Again:
        name = self._server.config.name
        if not task.done() and moment.lost:
            return self._lost(moment, moment.lost)
        if not task.done():
            return self._overdue(moment)
        if task.cancelled():
            return self._lost(moment, moment.lost or "its connection ended")
        error = task.exception()
        if error is None:
            return await self._answer(task.result(), moment)
        cause = next(leaves(error))
        if isinstance(cause, Unavailable):
            return self._failed("unavailable", str(cause))
        said = line(str(cause))[:_MANY] or type(cause).__name__
        if self._is_session_lost(said, moment) or moment.lost or (self._link and self._link.gone):
            return self._lost(moment, moment.lost or said)
        if moment.unsent:
            return self._lost(moment, self._trouble() or said)
        if moment.status:
            said = self._trouble() or said
        return self._failed("protocol_error", f"{name} could not answer: {said}. Try other arguments or another tool.")

    def _is_session_lost(self, said: str, moment: Moment) -> bool:
        lost = moment.status == 404 or any(words in said.lower() for words in _SESSION_LOST)
        if lost and not moment.sent:
            moment.unsent = True
        return lost

    def _trouble(self) -> str:
        return self._link.trouble.said if self._link else ""

    def _lost(self, moment: Moment, why: str) -> Result | _Again:
        if moment.unsent and not moment.sent:
            return _Again(f"The MCP server {self._server.config.name} could not be reached: {line(why)}")
        return self._failed(
            "unavailable",
            f"The MCP server {self._server.config.name} went away during the call: {line(why)}. "
            "The call was not repeated, because it may have run: look before you repeat it.",
        )

    def _overdue(self, moment: Moment) -> Result:
        total = time.monotonic() - self._began - moment.asked_s >= self._total_s
        bound = f"{self._total_s:g} s" if total else f"{self._limits.idle_s:g} s without a sign of life"
        return self._failed(
            "timeout",
            f"{self._server.config.name} did not answer within {bound}. It was asked to stop, but the call may still "
            "run there: look before you repeat it.",
        )

    def _failed(self, outcome: str, text: str) -> Result:
        self._server.log.add(f"{line(self._tool)}: {outcome}: {text}")
        return Result(ok=False, text=text)

    async def _answer(self, result: CallToolResult, moment: Moment) -> Result:
        text = await result_text(result, moment.notes, self._keep)
        if result.is_error:
            self._server.log.add(f"{line(self._tool)}: tool_error: {text[:_MANY]}")
        return Result(ok=not result.is_error, text=text)

    async def _keep(self, content: bytes) -> str:
        return await self._hooks.keep(self._context, content) if self._hooks.keep else "not kept"


def _ended(moment: Moment, task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # seen, also when nobody waits for it any more
    moment.stirred.set()
