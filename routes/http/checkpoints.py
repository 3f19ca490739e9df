"""The changes of a run in the workspace, and undoing them."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.checkpoints.checkpoints import Checkpoints
from app.checkpoints.report import report
from app.checkpoints.undo import UndoRefused, undo_run
from app.core.strict_model import StrictModel
from app.storage.audit import AuditRow
from app.storage.principals import Principal
from app.storage.runs import RunRow
from app.transcript.run_request import NotFound
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import Services, current_principal, services_of
from tools.base.rights import Role

OFF = "Checkpoints are off. Start the server with checkpoints = true to keep what later runs change."
ACTIVE = "Run {run} is still running. Wait until it has ended, or cancel it, then undo."
BUSY = "The session is busy with run {run}. Wait until it has ended, or cancel it, then undo."
ACTION = "undo"  # in the audit log


MOST_PATHS = 1_000
WorkspacePath = Annotated[str, Field(min_length=1, max_length=4096)]


class UndoRequest(StrictModel):
    """The body of POST /runs/{id}/undo, which may be left out: only these paths of the run's changes."""

    paths: list[WorkspacePath] = Field(default_factory=list, max_length=MOST_PATHS)


async def show_changes(request: Request) -> Response:
    """The changes of a run in the workspace.

    What it has created, changed and removed, with diffs. See [changes and undo](#changes-and-undo).
    """
    services = services_of(request)
    row, checkpoints = await _found(services, request), _checkpoints(services)
    return ASCIIResponse(await asyncio.to_thread(report, checkpoints.store, row.id))


async def undo(request: Request) -> Response:
    """Undo what a run has changed, or some of it.

    All or nothing: without a body everything, with `paths` only these files. 409 while the run or another one of its
    session is at work, and `undo_refused` with `files` if something has changed since. Harmless on a run that is
    undone.
    """
    services, principal = services_of(request), current_principal(request)
    row, checkpoints = await _found(services, request), _checkpoints(services)
    wanted = await read_fields(request, UndoRequest, services.settings.max_message_bytes, empty=True)
    if await services.runs.is_active(row.id):
        raise Refused(409, "run_active", ACTIVE.format(run=row.id))
    if busy := await services.runs.under_way(row.session):
        raise Refused(409, "session_busy", BUSY.format(run=busy), run=busy)
    await _audit(services, principal, row, "allow", "asked for by a person")  # before: an undo is never without a row
    try:
        await undo_run(checkpoints, row.id, principal.name, wanted.paths)
    except UndoRefused as refused:
        await _audit(services, principal, row, "refuse", str(refused))
        raise
    services.runs.notifier.notify(row.session)
    return ASCIIResponse(await asyncio.to_thread(report, checkpoints.store, row.id))


async def _found(services: Services, request: Request) -> RunRow:
    """The run, for its principal or an admin. Raises NotFound for others."""
    run, principal = request.path_params["run"], current_principal(request)
    try:
        return await services.runs.run(run, principal)
    except NotFound:
        row = await services.store.run(run) if principal.role is Role.ADMIN else None
        if row is None:
            raise
        return row


def _checkpoints(services: Services) -> Checkpoints:
    if services.checkpoints is None:
        raise Refused(409, "checkpoints_off", OFF)
    return services.checkpoints


async def _audit(services: Services, principal: Principal, row: RunRow, decision: str, why: str) -> None:
    entry = AuditRow(time.time(), row.principal, ACTION, decision, why=why, by=principal.name, run=row.id)
    await services.store.write([entry])


ROUTES = tagged(
    "Runs",
    Route("GET /runs/{run}/changes", show_changes, rights="owner", answer="@Changes"),
    Route(
        "POST /runs/{run}/undo",
        undo,
        rights="owner",
        answer="@Changes",
        errors=(409,),
        body=Body(UndoRequest, {"paths": ["notes.txt"]}, required=False),
    ),
)
