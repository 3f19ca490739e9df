"""Calls of clients: of `ask_agent`, and of tools that the principal may use here; each is a run, which is followed.

A run of `ask_agent` is a task for clients that declare the extension: its id is that of the run, so that a client that
was cut off polls on, and a run that another server goes on with is the same task there.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    PaginatedRequestParams,
    RequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from msgspec.structs import replace
from pydantic import Field, ValidationError
from starlette.requests import Request

from app.core.rules import WhenAbsent
from app.policy.approvals import AlreadyDecided, ApprovalExpired, NoApproval
from app.policy.stored_grants import UnfitArguments
from app.runs.run_options import RunOptions
from app.storage.principals import Principal
from app.storage.runs import ALL, RunRow
from app.transcript.run_request import ConversationMoved, DirectCall, RunRequest, direct_call_of
from routes.mcp_server.run_log import TEXT, Fields, RunLog, form_of, review_of
from routes.protocol.requests import ChatRequest
from routes.services import Services, traceparent_of
from tools.base.rights import Risk
from tools.mcp.results import line

TASKS = "io.modelcontextprotocol/tasks"
NO_TASKS: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
PAGE, MOST_TRIES = 100, 3  # tools of a list; showings of a form
POLL_MS, SIDE_BY_SIDE = 1_000, 8
MOST_DIGITS = 15  # of what clients give back
ASK_AGENT: dict[str, Any] = {
    "name": "ask_agent",
    "description": "Give the agent of this server a task. It has tools, files and connected servers of its own, and "
    "works until it has an answer. Send the session of an earlier answer to go on with that conversation.",
    "inputSchema": {
        "type": "object",
        "properties": {"message": TEXT, "session": TEXT, "model": TEXT},
        "required": ["message"],
        "additionalProperties": False,
    },
    "outputSchema": {"type": "object", "properties": {"session": TEXT, "run": TEXT, "reason": TEXT}},
}
AS_TASKS = frozenset({ASK_AGENT["name"]})  # tools that take their time
Json = dict[str, Any]


class TaskParams(RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`, and with answers to forms, by call, of `tasks/update`."""

    task_id: str = Field(max_length=64)
    input_responses: dict[str, Any] = Field(default_factory=dict)


class Caller(Struct, frozen=True):
    """A client's request: `ctx` as the SDK hands it to handlers."""

    ctx: ServerRequestContext[Any, Any]
    request: Request
    services: Services
    principal: Principal

    async def conversation(self) -> tuple[str, bool]:
        """Return the key of a session for a direct call, and whether the calls before it have read untrusted text.

        Each call reads its session whole, so another one begins each hour, and one more for calls side by side.
        """
        params, store, principal = self.ctx.session.client_params, self.services.store, self.principal
        name = line(params.client_info.name)[:60] if params else "MCP client"
        key, tainted = f"{name} {time.strftime('%Y-%m-%d %H', time.gmtime())}", False
        free = keys = [key, *(f"{key} ({number})" for number in range(2, SIDE_BY_SIDE + 1))]
        for one in keys:
            if session := await store.keyed_session(principal.keeper, one, principal.name):
                tainted = tainted or await store.tainted(session)
                if await self.services.runs.under_way(session):
                    free = [other for other in free if other != one]
        return (free or keys)[0], tainted

    @property
    def is_modern(self) -> bool:
        """Return True for a client since 2026-07-28, which is answered with questions instead of being asked."""
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def takes_tasks(self) -> bool:
        declared = self.ctx.session.client_capabilities
        return self.is_modern and declared is not None and TASKS in (declared.extensions or {})

    @property
    def shows_forms(self) -> bool:
        declared = self.ctx.session.client_capabilities
        forms = declared.elicitation if declared else None
        can = forms is not None and (forms.form is not None or forms.url is None)
        return can and (self.is_modern or self.ctx.session.can_send_request)

    @property
    def when_absent(self) -> WhenAbsent:
        there = self.shows_forms or self.services.presence.has_page(self.principal.name)
        return WhenAbsent.WAIT if there else WhenAbsent.DENY

    async def decide(self, log: RunLog, answers: Any) -> None:
        """Decide as the person has, unless the call is decided already. Raises UnfitArguments, StoreFailed."""
        for call, asked in list(log.waiting.items()):
            answer = (answers or {}).get(call)
            given = ElicitResult.model_validate(answer, from_attributes=True) if answer else None
            if given and (review := review_of(asked, given)):
                with suppress(AlreadyDecided, ApprovalExpired, NoApproval):
                    await self.services.runs.decide(log.row.id, call, self.principal, review)

    def forms(self, log: RunLog) -> Json:
        asked = log.waiting if self.shows_forms else {}
        return {call: {"method": "elicitation/create", "params": form_of(one)} for call, one in asked.items()}


async def list_tools(caller: Caller, params: PaginatedRequestParams) -> Json:
    gate = await caller.services.factory.current_gate(caller.principal)
    tools = [ASK_AGENT]
    for tool in gate.acting().offer(caller.services.factory.tools):
        hints = {"readOnlyHint": tool.risk is Risk.READ}
        schema = {"type": "object", **tool.parameters}
        tools.append({"name": tool.name, "description": tool.description, "inputSchema": schema, "annotations": hints})
    at = _number(params.cursor or "")
    return {"tools": tools[at : at + PAGE]} | ({"nextCursor": str(at + PAGE)} if at + PAGE < len(tools) else {})


async def call_tool(caller: Caller, params: CallToolRequestParams) -> Json:
    """Begin the run of a call, or go on with the one whose question the client answers; then follow it."""
    asks, arguments = params.name == ASK_AGENT["name"], params.arguments or {}
    if params.request_state is not None:
        run, _, seq = params.request_state.partition(" ")
        log = RunLog(await caller.services.runs.run(run, caller.principal))
        made, stored = direct_call_of(log.row), caller.services.redactor.redact_value(arguments)
        if made != (None if asks else DirectCall(params.name, stored, "mcp")):
            raise MCPError(INVALID_PARAMS, "requestState belongs to another call. Send the one that it came with.")
        log.take(await caller.services.store.events(run, 0, _number(seq)))
        await caller.decide(log, params.input_responses)
        return await _followed(caller, log)
    try:
        row = await (_begin_agent(caller, arguments) if asks else _begin_call(caller, params.name, arguments))
    except ValueError as wrong:  # of the arguments, for the model that has written them
        why = wrong.errors()[0]["msg"] if isinstance(wrong, ValidationError) else str(wrong)
        return {"content": [{"type": "text", "text": why}], "isError": True}
    if params.name in AS_TASKS and caller.takes_tasks:
        return _task(row, "working") | {"resultType": "task"}
    return await _followed(caller, RunLog(row))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else 0


async def _begin_agent(caller: Caller, arguments: Json) -> RunRow:
    wanted = ChatRequest.model_validate(arguments)
    fits = wanted.text.strip() and len(wanted.text.encode()) <= caller.services.settings.max_message_bytes
    if not fits or arguments.keys() - {"message", "session", "model"}:
        raise ValueError("ask_agent takes a message, which is neither empty nor too long, a session and a model.")
    options = RunOptions(model=wanted.model, when_absent=caller.when_absent)
    agent = await caller.services.factory.agent(caller.principal, options, wanted.session)
    turn = _turn(caller, options, wanted.text)
    return await caller.services.runs.start(agent, caller.principal, replace(turn, session=wanted.session))


async def _begin_call(caller: Caller, name: str, arguments: Json) -> RunRow:
    services, principal = caller.services, caller.principal
    key, tainted = await caller.conversation()
    options = RunOptions(tools=[name], when_absent=caller.when_absent)
    call = DirectCall(name, arguments, "mcp")
    turn = replace(_turn(caller, options), when_busy="queue", conversation=key, subject=key, call=call)
    while True:
        session = await services.store.keyed_session(principal.keeper, key, principal.name)
        with suppress(ConversationMoved):
            agent = await services.factory.agent(principal, RunOptions(tools=[name]), session)
            if options.when_absent is WhenAbsent.DENY:  # it is listed, so that the client gets the reason
                agent.scope.gate.refuse_questions()
            if tainted:
                agent.scope.gate.taint()
            return await services.runs.start(agent, principal, replace(turn, session=session))


def _turn(caller: Caller, options: RunOptions, message: str = "") -> RunRequest:
    seconds, trace = caller.services.factory.limits(options).seconds, traceparent_of(caller.request, caller.services)
    return RunRequest(message, time_limit_s=seconds, policy=options.policy(), traceparent=trace)


async def _followed(caller: Caller, log: RunLog) -> Json:
    """Follow a run to its end, or to a question for the client. A client that cancels its call cancels the run."""
    services, asking = caller.services, dict[str, asyncio.Task[None]]()
    try:
        async with aclosing(services.runs.watch(log.row.id, log.seq)) as pages:
            async for rows in pages:
                if message := log.take(rows):
                    await caller.ctx.session.report_progress(log.seq, message=message)
                for call in asking.keys() - log.waiting.keys():
                    asking.pop(call).cancel()
                forms = caller.forms(log)
                if forms and caller.is_modern:
                    state = f"{log.row.id} {log.seq}"
                    return {"resultType": "input_required", "inputRequests": forms, "requestState": state}
                for call in forms.keys() - asking.keys():
                    asking[call] = asyncio.create_task(_ask(caller, log.row, call, log.waiting[call]))
    except asyncio.CancelledError:
        if not services.draining:
            with anyio.CancelScope(shield=True):
                await services.runs.cancel(log.row.id)
        raise
    finally:
        for task in asking.values():
            task.cancel()
    if not log.end:
        raise MCPError(INTERNAL_ERROR, f"The server stops. Run {log.row.id} goes on when it is back.")
    return await log.result(services.factory.files.read)


async def _ask(caller: Caller, row: RunRow, call: str, asked: Fields) -> None:
    """Have the client show a form, again while the answers do not fit."""
    form = ElicitRequest(params=ElicitRequestFormParams.model_validate(form_of(asked)))
    related = ServerMessageMetadata(related_request_id=caller.ctx.request_id)
    for _ in range(MOST_TRIES):
        try:
            answer = await caller.ctx.session.send_request(form, ElicitResult, metadata=related)
        except (MCPError, ValidationError):  # it cannot
            answer = ElicitResult(action="decline")
        with suppress(UnfitArguments):
            await caller.decide(RunLog(row, waiting={call: asked}), {call: answer})
            return


async def get_task(caller: Caller, params: TaskParams) -> Json:
    log, message = await _task_log(caller, params)
    if log.row.ended is None:
        more = {"statusMessage": message} if message else {}
        if forms := caller.forms(log):
            return _task(log.row, "input_required") | more | {"inputRequests": forms}
        return _task(log.row, "working") | more
    if log.row.state == "cancelled":
        return _task(log.row, "cancelled")
    return _task(log.row, "completed") | {"result": await log.result(caller.services.factory.files.read)}


async def update_task(caller: Caller, params: TaskParams) -> Json:
    log, _ = await _task_log(caller, params)
    await caller.decide(log, params.input_responses)
    return {}


async def cancel_task(caller: Caller, params: TaskParams) -> Json:
    log, _ = await _task_log(caller, params)
    await caller.services.runs.cancel(log.row.id)
    return {}


async def _task_log(caller: Caller, params: TaskParams) -> tuple[RunLog, str]:
    """Raises MCPError, NotFound."""
    if not caller.takes_tasks:
        raise MCPError(-32021, "Missing required client capability", NO_TASKS)
    if caller.request.headers.get("mcp-name", params.task_id) != params.task_id:
        raise MCPError(HEADER_MISMATCH, "mcp-name header does not match the task")
    log = RunLog(await caller.services.runs.run(params.task_id, caller.principal))
    return log, log.take(await caller.services.store.events(log.row.id, 0, ALL))


def _task(row: RunRow, status: str) -> Json:
    began, changed = (datetime.fromtimestamp(at, UTC).isoformat() for at in (row.created, row.ended or row.created))
    times = {"createdAt": began, "lastUpdatedAt": changed, "ttlMs": None, "pollIntervalMs": POLL_MS}
    return {"taskId": row.id, "status": status} | times
