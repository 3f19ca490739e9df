"""Tools of this server: `ask_agent`, and those that the principal may use here, each call a run of its own."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitResult,
    InputRequests,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    ToolAnnotations,
)
from mcp_types import Tool as OfferedTool
from msgspec.structs import replace
from pydantic import ValidationError

from app.core.rules import WhenAbsent
from app.policy.stored_grants import UnfitArguments
from app.runs.run_options import RunOptions
from app.storage.runs import RunRow
from app.transcript.run_request import ConversationMoved, DirectCall, RunRequest, direct_call_of
from routes.mcp_server.callers import Caller
from routes.mcp_server.questions import decide, form_of
from routes.mcp_server.run_log import Fields, RunLog
from routes.mcp_server.tasks import created
from routes.protocol.requests import ChatRequest
from routes.services import traceparent_of
from tools.base.rights import Risk
from tools.tool import Tool

ASK_AGENT = OfferedTool(
    name="ask_agent",
    title="Ask dragoman's agent",
    description=(
        "Give the agent of this server a task. It has tools, files and connected servers of its own, and works until "
        "it has an answer. Send the session of an earlier answer to go on with that conversation."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "message": {"type": "string", "description": "What the agent is to do"},
            "session": {"type": "string", "description": "The session to go on with; without it a new one begins"},
            "model": {"type": "string", "description": "The model to use; without it the default one"},
        },
        "required": ["message"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("session", "run", "reason")},
        "required": ["session", "run", "reason"],
    },
)
PAGE = 100
MOST_TRIES = 3  # of a form


async def list_tools(caller: Caller, params: PaginatedRequestParams | None) -> ListToolsResult:
    gate = await caller.services.factory.current_gate(caller.principal)
    tools = [ASK_AGENT, *map(_offered, gate.acting().offer(caller.services.factory.tools))]
    given = (params.cursor if params else None) or "0"
    if not (given.isdecimal() and int(given) <= len(tools)):
        raise MCPError(INVALID_PARAMS, "The cursor is not one of this list.")
    at = int(given)
    return ListToolsResult(tools=tools[at : at + PAGE], next_cursor=str(at + PAGE) if at + PAGE < len(tools) else None)


def _offered(tool: Tool) -> OfferedTool:
    hints = tool.origin.hints if tool.origin else None
    annotations = ToolAnnotations(
        read_only_hint=tool.risk is Risk.READ,
        destructive_hint=hints.destructive if hints else None,
        open_world_hint=hints.open_world if hints else None,
    )
    schema = {"type": "object", **tool.parameters}
    return OfferedTool(name=tool.name, description=tool.description, input_schema=schema, annotations=annotations)


async def call_tool(
    caller: Caller, params: CallToolRequestParams
) -> CallToolResult | InputRequiredResult | dict[str, Any]:
    """Begin the run of a call, or go on with the one whose question the client answers; then follow it."""
    if params.request_state is not None:
        log = await _log_of(caller, params)
        answers = params.input_responses or {}
        for call, fields in list(log.waiting.items()):
            if isinstance(answer := answers.get(call), ElicitResult):
                await decide(caller, log.row.id, fields, answer)
        return await _followed(caller, log)
    try:
        begin = _begin_agent if params.name == ASK_AGENT.name else _begin_call
        row = await begin(caller, params)
    except ValidationError as invalid:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in invalid.errors()[:5])
        raise MCPError(INVALID_PARAMS, wrong) from None
    if params.name == ASK_AGENT.name and caller.takes_tasks:
        return created(row)
    return await _followed(caller, RunLog(row))


async def _log_of(caller: Caller, params: CallToolRequestParams) -> RunLog:
    """Return the log of the run that a retry names. Raises NotFound, MCPError."""
    run, _, seq = (params.request_state or "").partition(" ")
    row = await caller.services.runs.run(run, caller.principal)
    call = direct_call_of(row)
    made = (call.name, call.arguments) if call else (ASK_AGENT.name, params.arguments)
    if made != (params.name, params.arguments if call is None else dict(params.arguments or {})):
        raise MCPError(INVALID_PARAMS, "requestState belongs to another call. Send the one that it came with.")
    log, limit = RunLog(row), int(seq) if seq.isdecimal() else 0
    log.take(await caller.services.store.events(run, 0, limit))
    return log


async def _begin_agent(caller: Caller, params: CallToolRequestParams) -> RunRow:
    services, wanted = caller.services, ChatRequest.model_validate(params.arguments or {})
    if wanted.model_fields_set - {"message", "session", "model"} or not wanted.text.strip():
        raise MCPError(INVALID_PARAMS, "ask_agent takes a message, which is no empty text, a session and a model.")
    options = RunOptions(model=wanted.model, when_absent=caller.when_absent)
    agent = await services.factory.agent(caller.principal, options, wanted.session)
    turn = RunRequest(
        wanted.text,
        wanted.session,
        time_limit_s=services.factory.limits(options).seconds,
        policy=options.policy(),
        traceparent=traceparent_of(caller.request, services),
    )
    return await services.runs.start(agent, caller.principal, turn)


async def _begin_call(caller: Caller, params: CallToolRequestParams) -> RunRow:
    services, principal, key = caller.services, caller.principal, caller.conversation
    options = RunOptions(tools=[params.name], when_absent=caller.when_absent)
    turn = RunRequest(
        "",
        when_busy="queue",
        time_limit_s=services.factory.limits(options).seconds,
        policy=options.policy(),
        conversation=key,
        subject=f"Calls of {caller.name}",
        traceparent=traceparent_of(caller.request, services),
        call=DirectCall(params.name, dict(params.arguments or {}), "mcp"),
    )
    while True:
        session = await services.store.keyed_session(principal.keeper, key, principal.name)
        with suppress(ConversationMoved):
            agent = await services.factory.agent(principal, RunOptions(tools=[params.name]), session)
            if options.when_absent is WhenAbsent.DENY:  # listed it is: the reason is told
                agent.scope.gate.refuse_questions()
            return await services.runs.start(agent, principal, replace(turn, session=session))


async def _followed(caller: Caller, log: RunLog) -> CallToolResult | InputRequiredResult:
    """Follow a run to its end, or to a question for the client. A client that cancels its call cancels the run."""
    services, asking = caller.services, dict[str, asyncio.Task[None]]()
    try:
        async with aclosing(services.runs.watch(log.row.id, log.seq)) as pages:
            async for rows in pages:
                if message := log.take(rows):
                    await caller.ctx.session.report_progress(log.seq, message=message)
                for call in asking.keys() - log.waiting.keys():
                    asking.pop(call).cancel()
                if log.waiting and caller.shows_forms:
                    if caller.is_modern:
                        forms: InputRequests = {call: form_of(fields) for call, fields in log.waiting.items()}
                        return InputRequiredResult(input_requests=forms, request_state=f"{log.row.id} {log.seq}")
                    for call, fields in log.waiting.items():
                        asking[call] = asking.get(call) or asyncio.create_task(_ask(caller, log.row.id, fields))
    except asyncio.CancelledError:
        if not services.draining:
            with anyio.CancelScope(shield=True):
                await services.runs.cancel(log.row.id)
        raise
    finally:
        for task in asking.values():
            task.cancel()
    if log.end is None:
        raise MCPError(INTERNAL_ERROR, f"The server stops. Run {log.row.id} goes on when it is back.")
    return await log.result(services.factory.files.read)


async def _ask(caller: Caller, run: str, fields: Fields) -> None:
    """Have the client show a form, again while the answers do not fit."""
    related = ServerMessageMetadata(related_request_id=caller.ctx.request_id)
    for _ in range(MOST_TRIES):
        with suppress(UnfitArguments):
            try:
                answer = await caller.ctx.session.send_request(form_of(fields), ElicitResult, metadata=related)
            except (MCPError, ValidationError):  # it cannot, or answers what is none
                break
            await decide(caller, run, fields, answer)
            return
    await decide(caller, run, fields, ElicitResult(action="decline"))
