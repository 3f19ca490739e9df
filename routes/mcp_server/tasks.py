"""Runs of `ask_agent` as tasks (the extension `io.modelcontextprotocol/tasks`): a client that was cut off polls on.

The id of a task is that of its run. A run that another server goes on with is the same task there.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, RequestParams
from pydantic import Field

from app.storage.runs import ALL, RunRow
from routes.mcp_server.callers import TASKS, Caller
from routes.mcp_server.questions import decide, form_of
from routes.mcp_server.run_log import RunLog

POLL_MS = 1_000
CANCELLED = "cancelled"
MISSING_CAPABILITY = -32021
MISSING: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}


class TaskParams(RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str = Field(max_length=64)


class UpdateParams(TaskParams):
    """The parameters of `tasks/update`: the answers to forms, by call."""

    input_responses: dict[str, ElicitResult]


def created(row: RunRow) -> dict[str, Any]:
    """Return the handle that answers a call in place of its result."""
    return _fields(row, "working") | {"resultType": "task"}


async def get_task(caller: Caller, params: TaskParams) -> dict[str, Any]:
    log = await _log_of(caller, params.task_id)
    message = log.take(await caller.services.store.events(log.row.id, 0, ALL))
    if log.row.ended is not None:
        if log.row.state == CANCELLED:
            return _fields(log.row, CANCELLED)
        result = await log.result(caller.services.factory.files.read)
        shown = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return _fields(log.row, "completed") | {"result": shown}
    said = {"statusMessage": message} if message else {}
    if log.waiting and caller.shows_forms:
        forms = {call: form_of(fields) for call, fields in log.waiting.items()}
        shown = {call: form.model_dump(by_alias=True, mode="json", exclude_none=True) for call, form in forms.items()}
        return _fields(log.row, "input_required") | said | {"inputRequests": shown}
    return _fields(log.row, "working") | said


async def update_task(caller: Caller, params: UpdateParams) -> dict[str, Any]:
    log = await _log_of(caller, params.task_id)
    log.take(await caller.services.store.events(log.row.id, 0, ALL))
    for call, fields in list(log.waiting.items()):
        if answer := params.input_responses.get(call):
            await decide(caller, log.row.id, fields, answer)
    return {}


async def cancel_task(caller: Caller, params: TaskParams) -> dict[str, Any]:
    log = await _log_of(caller, params.task_id)
    await caller.services.runs.cancel(log.row.id)
    return {}


async def _log_of(caller: Caller, task: str) -> RunLog:
    """Raises MCPError, NotFound."""
    if not caller.takes_tasks:
        raise MCPError(MISSING_CAPABILITY, "Missing required client capability", MISSING)
    return RunLog(await caller.services.runs.run(task, caller.principal))


def _fields(row: RunRow, status: str) -> dict[str, Any]:
    changed = row.created if row.ended is None else row.ended
    return {
        "taskId": row.id,
        "status": status,
        "createdAt": _time(row.created),
        "lastUpdatedAt": _time(changed),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
