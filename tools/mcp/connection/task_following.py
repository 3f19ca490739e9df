"""Following the task that a call has become: its status is polled, its questions are asked, its end is the result.

The extension has the result in `tasks/get`, and takes answers with `tasks/update`. A server of 2025-11-25 has it in
`tasks/result`, and asks while that is open. A server that is gone is asked again, until the call's limits end it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from mcp import Client, MCPError
from mcp.client import ClientRequestContext
from mcp_types import INTERNAL_ERROR, CallToolResult, ErrorData, InputRequest, Request
from msgspec.structs import replace
from pydantic import TypeAdapter

from tools.base.access import OVER, RemoteTask
from tools.base.outcome import ToolFailed
from tools.base.tasks import retrieve, wait_at_most
from tools.mcp.call_context import CallContext, current_call
from tools.mcp.connection.elicitation import MOST_ASKED
from tools.mcp.connection.extensions import TASKS
from tools.mcp.connection.session import McpSession
from tools.mcp.results import line
from tools.mcp.server import Server, Unavailable

LEAST_S, USUAL_S, MOST_S, JITTER = 0.5, 2.0, 60.0, 0.1  # between two polls
ANSWER_S = 30.0  # for a connection, and for the answer to a request about the task
MOST_ID, MOST_MS = 1_000, 1e12
STATUSES = ("working", "input_required", *OVER)
_ANY: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
_INPUT: TypeAdapter[InputRequest] = TypeAdapter(InputRequest)


class _TaskRequest(Request[dict[str, Any], str]):
    name_param = "taskId"  # by its header `Mcp-Name` an intermediary finds the server that has the task


def begun(server: str, result: CallToolResult) -> RemoteTask | None:
    """Return the task that a call was answered with, if it was. Raises ValueError."""
    if not isinstance(handle := (result.meta or {}).get(TASKS), dict):
        return None
    if not isinstance(id := handle.get("taskId"), str) or not 0 < len(id) <= MOST_ID:
        raise ValueError("it made a task of the call, without a usable id")
    return _updated(RemoteTask(server, id, STATUSES[0], time.time()), handle)


class TaskFollower:
    """Follows one task. `changed` takes each state of it that the server has reported."""

    def __init__(
        self, server: Server, call: CallContext, task: RemoteTask, changed: Callable[[RemoteTask], Awaitable[None]]
    ) -> None:
        self.task = task
        self._server = server
        self._call = call
        self._changed = changed
        self._sessions: set[McpSession] = set()  # over which it was followed: a question may be open in each
        self._asked: dict[str, asyncio.Task[Any]] = {}  # by the keys of the questions
        self._news = CallContext(call.tool, call.context)  # woken by the server's notifications, and by answers
        call.task = task.task

    async def result(self) -> CallToolResult:
        """Return the result, once it is there. Raises ToolFailed, or the error by which that is not known."""
        current_call.set(self._call)
        try:
            if self._call.context.task is None:
                await self._enter(self.task)  # durable before it is polled
            while True:
                self._news.woken.clear()
                with suppress(Unavailable):
                    if (found := await self._poll()) is not None:
                        return found
                await asyncio.sleep(LEAST_S)
                pause_s = min(MOST_S, max(LEAST_S, self.task.poll_s or USUAL_S)) * random.uniform(1, 1 + JITTER)
                await wait_at_most(pause_s - LEAST_S, self._news.woken)
        finally:
            for asking in self._asked.values():
                asking.cancel()
            for session in self._sessions:
                session.calls.discard(self._call)
                session.traffic.tasks.pop(self._call.task, None)
            if not (self.task.status in OVER or self._call.context.goes_on()):
                self._server.cancelling.add(cancelling := self._begin(self.cancel(), self._news))
                cancelling.add_done_callback(self._server.cancelling.discard)

    async def cancel(self) -> None:
        """Request the end of the task. Raises MCPError, Unavailable."""
        await self._request(None, "tasks/cancel")

    async def _enter(self, task: RemoteTask) -> None:
        self.task, shown = task, ": ".join(filter(None, (task.status, task.message)))
        if shown not in [*self._call.messages][-1:]:
            self._call.count += 1
            self._call.messages.append(shown)
        self._call.touch()
        await self._changed(task)

    async def _poll(self) -> CallToolResult | None:
        """Ask for the state; return the result if there is one."""
        session = await self._server.connected(ANSWER_S)
        self._sessions = {session, *(one for one in self._sessions if not one.gone)}
        session.calls.add(self._call)
        session.traffic.tasks[self._call.task] = self._news.woken
        state = await self._request(session, "tasks/get")
        if state.get("taskId") != self.task.task or state.get("status") not in STATUSES:
            raise ValueError("its answer about the task could not be read")
        await self._enter(_updated(self.task, state))
        match state:
            case {"status": "completed", "result": dict() as found}:
                return await self._checked(session, found)
            case {"status": "input_required", "inputRequests": dict() as requests}:
                await self._ask(session, requests)
            case {"status": "input_required" | "completed"} if not session.is_modern:
                return await self._legacy_result(session)
            case {"status": "failed", "error": {"message": message}}:
                raise ToolFailed(str(message))
            case {"status": "completed" | "failed" | "cancelled" as status}:
                raise ToolFailed(self.task.message or f"it is {status}, without a result")
        return None

    async def _ask(self, session: McpSession, requests: Mapping[str, Any]) -> None:
        """Ask each open question once, and send the answers that are there. A server ignores one that it has."""
        for key in self._asked.keys() - requests.keys():
            self._asked[key].cancel()  # it is not needed any more
        if len(self._asked.keys() | requests.keys()) > MOST_ASKED:
            raise ToolFailed(f"it asks more than {MOST_ASKED} questions")
        for key in requests.keys() - self._asked.keys():
            respond = partial(_response, request=_INPUT.validate_python(requests[key]), id=self._call.task)
            self._asked[key] = self._begin(session.request(self._call, "", respond), self._news)
        done = [key for key in requests if self._asked[key].done() and not self._asked[key].cancelled()]
        if answers := {key: self._asked[key].result() for key in done}:
            await self._request(session, "tasks/update", inputResponses=answers)

    async def _legacy_result(self, session: McpSession) -> CallToolResult | None:
        """Request the result; None if it is not there yet, and questions may come meanwhile."""
        if "" not in self._asked:
            self._asked[""] = self._begin(self._request(session, "tasks/result", limit_s=None), self._news)
        await asyncio.wait({self._asked[""]}, timeout=ANSWER_S if self.task.status in OVER else 0)
        return await self._checked(session, self._asked.pop("").result()) if self._asked[""].done() else None

    async def _checked(self, session: McpSession, found: dict[str, Any]) -> CallToolResult:
        result = CallToolResult.model_validate(found, by_name=False)
        await session.check(self._call.tool, result)
        return result

    async def _request(
        self, session: McpSession | None, method: str, limit_s: float | None = ANSWER_S, **params: object
    ) -> Any:
        """Make a request about the task. Raises MCPError; Unavailable if it can be made again."""
        session = session or await self._server.connected(ANSWER_S)
        context = CallContext(self._call.tool, self._call.context)
        request = _TaskRequest(method=method, params={"taskId": self._call.task, **params})
        # Its operation is the call: a poll would replace what the call's span says, and be counted with each.
        send = session.request(context, "", lambda client: client.session.send_request(request, _ANY))
        asking = self._begin(send, context)
        try:
            await wait_at_most(limit_s, context.woken)
        finally:
            asking.cancel()
        if not asking.done() or asking.cancelled():
            raise Unavailable(context.lost or "no answer")
        if (error := asking.exception()) and context.status == 404:
            self._server.drop(session, line(str(error)))  # it has started anew, perhaps with the task
        passes = isinstance(error, MCPError) and error.code == INTERNAL_ERROR
        if error and (passes or context.lost or context.unsent or context.status or session.gone):
            raise Unavailable(str(error)) from error
        return asking.result()

    def _begin(self, work: Coroutine[Any, Any, Any], context: CallContext) -> asyncio.Task[Any]:
        """Start work whose end wakes the context. It is cancelled and never awaited: the SDK may take seconds."""
        task = asyncio.create_task(work)
        task.add_done_callback(retrieve)
        task.add_done_callback(lambda _: context.woken.set())
        return task


async def _response(client: Client, request: InputRequest, id: str) -> dict[str, Any]:
    """Return the answer to a request that came as data, by the rules for one that the server sends."""
    context = ClientRequestContext(session=client.session, request_id=id, meta=None)
    response = await client.session.dispatch_input_request(context, request)
    if isinstance(response, ErrorData):
        raise MCPError.from_error_data(response)
    return response.model_dump(by_alias=True, mode="json", exclude_none=True)


def _updated(task: RemoteTask, fields: Mapping[str, Any]) -> RemoteTask:
    """Return the task with what the server says of it, in either era's names."""
    status, message = fields.get("status"), fields.get("statusMessage")
    return replace(
        task,
        status=status if status in STATUSES else task.status,
        message=line(message) if message and isinstance(message, str) else None,
        poll_s=_seconds(fields.get("pollIntervalMs", fields.get("pollInterval"))),
        ttl_s=_seconds(fields.get("ttlMs", fields.get("ttl"))),
    )


def _seconds(given: object) -> float | None:
    """Return milliseconds of a server as seconds; None if they are no such number."""
    return given / 1000 if isinstance(given, int | float) and 0 < given < MOST_MS else None
