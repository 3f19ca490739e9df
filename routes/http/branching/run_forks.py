"""Forks inside a run, and the changes of a branch that works in a folder of its own."""

from __future__ import annotations

import hashlib
import time
from typing import Annotated, Any

from pydantic import Field, Strict, model_validator
from starlette.requests import Request
from starlette.responses import Response

from app.checkpoints.checkpoints import Checkpoints
from app.checkpoints.scratch import OFF
from app.checkpoints.take_over import NO_FOLDER, ScratchChanges, changes_of, reported, take_over
from app.checkpoints.undo import UndoRefused
from app.core.rules import ApprovalMode
from app.core.strict_model import StrictModel
from app.runs.branching.run_cut import Edit
from app.runs.branching.run_forking import ForkRequest, RunForking
from app.storage.audit import AuditRow
from app.storage.runs import RunRow
from app.transcript.run_request import SessionBusy
from app.transcript.unfit_arguments import unfit
from routes.http.chat import HEADERS, answered
from routes.http.checkpoints import MOST_PATHS, WorkspacePath
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.message_parts import Storable
from routes.protocol.numbers import LARGEST
from routes.protocol.requests import key_of, read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import current_principal, services_of, traceparent_of

ACTION = "take over"  # in the audit log


class EditRequest(StrictModel):
    """One change of what stands at the event: the words, the arguments of a call, or the last result."""

    message: Annotated[Storable, Field(min_length=1)] | None = None
    arguments: dict[str, Any] | None = None
    call: Storable | None = None
    result: Storable | None = None

    @model_validator(mode="after")
    def _sensible(self) -> EditRequest:
        if sum(one is not None for one in (self.message, self.arguments, self.result)) != 1:
            raise ValueError("send one of message, arguments and result")
        if self.call is not None and self.arguments is None:
            raise ValueError("call names the call of arguments: send them, too, or leave it out")
        if self.arguments is not None and (reason := unfit(self.arguments)):
            raise ValueError(reason)
        return self


class RunForkRequest(StrictModel):
    """The body of POST /runs/{id}/fork: the number of the event at which the new run goes on."""

    at: int = Field(ge=1, le=LARGEST)
    model: str | None = Field(default=None, min_length=1, max_length=256)
    approval: Annotated[ApprovalMode, Strict(strict=False)] = ApprovalMode.ASK
    edit: EditRequest | None = None
    message: Storable = ""


class TakeOverRequest(StrictModel):
    """The body of POST /sessions/{id}/take-over: the fingerprint of the changes that were looked at."""

    fingerprint: str = Field(min_length=1, max_length=128)
    paths: list[WorkspacePath] = Field(default_factory=list, max_length=MOST_PATHS)


async def fork_run(request: Request) -> Response:
    """Go on from an event of a run in a new branch.

    The branch has the conversation and the run up to the event `at`, and works in a folder of its own, with the files
    as they were then; the run stays as it is. `approval` is `ask` unless it is named, `edit` changes what stands at the
    event, `message` follows it. See [forks inside a run](#forks-inside-a-run).
    """
    services, principal = services_of(request), current_principal(request)
    run = await services.runs.run(request.path_params["run"], principal)
    most = services.settings.max_message_bytes
    body = await read_fields(request, RunForkRequest, most)
    edit = Edit(**body.edit.model_dump()) if body.edit else Edit()
    if max(len((text or "").encode()) for text in (body.message, edit.message, edit.result)) > most:
        raise Refused(413, "too_long", f"A text is longer than {most:,} bytes; shorten it.")
    fingerprint = hashlib.sha256(f"fork {run.id} {body.model_dump_json()}".encode()).hexdigest()
    wanted = ForkRequest(
        body.at,
        body.model,
        approval=body.approval,
        edit=edit,
        message=body.message,
        key=key_of(request, fingerprint),
        traceparent=traceparent_of(request, services),
    )

    async def begin() -> RunRow:
        return await RunForking(services.factory).fork(principal, run.id, wanted)

    return await answered(request, begin)


async def show_changes(request: Request) -> Response:
    """The changes of a branch in the folder of its own.

    Those since the [fork](#forks-inside-a-run), or since they were last taken over, as of a run, with a `fingerprint`
    of them all.
    """
    _, checkpoints, changes = await _found(request)
    return ASCIIResponse(await reported(checkpoints, changes))


async def take_over_changes(request: Request) -> Response:
    """Write the changes of a branch into the workspace.

    All of them or those of some `paths`, only as they were looked at (`fingerprint`), and only where the files are as
    they were at the [fork](#forks-inside-a-run): else 409, with the `files`. It is undone by its `change`:
    `POST /workspace/changes/{change}/undo`.
    """
    services, principal = services_of(request), current_principal(request)
    body = await read_fields(request, TakeOverRequest, services.settings.max_message_bytes)
    session, checkpoints, changes = await _found(request)
    services.switch.check()
    if busy := await services.runs.under_way(session):
        raise SessionBusy(busy)
    await _audit(request, session, "allow", "asked for by a person")
    try:
        change = await take_over(checkpoints, changes, body.fingerprint, principal.name, body.paths)
    except UndoRefused as refused:
        await _audit(request, session, "refuse", str(refused))
        raise
    services.runs.notifier.notify(session)
    _, _, left = await _found(request)
    return ASCIIResponse(await reported(checkpoints, left) | {"change": change})


async def _found(request: Request) -> tuple[str, Checkpoints, ScratchChanges]:
    """The changes of the session of a request. Raises NotFound, Refused, UndoRefused."""
    services = services_of(request)
    session = (await services.runs.session(request.path_params["session"], current_principal(request))).id
    folder = services.factory.scratch.of(session)
    if folder is None:
        raise Refused(409, "no_folder", NO_FOLDER)
    if services.checkpoints is None:
        raise Refused(409, "checkpoints_off", OFF)
    return session, services.checkpoints, await changes_of(services.checkpoints, session, folder)


async def _audit(request: Request, session: str, decision: str, why: str) -> None:
    services, name = services_of(request), current_principal(request).name
    await services.store.write([AuditRow(time.time(), name, f"{ACTION} {session}", decision, why=why, by=name)])


ROUTES = (
    *tagged(
        "Runs",
        Route(
            "POST /runs/{run}/fork",
            fork_run,
            rights="owner",
            accepted={"run": "text", "session": "text"},
            statuses=(200, 202),
            errors=(409,),
            body=Body(RunForkRequest, {"at": 12, "message": "Use the other library."}),
            headers=HEADERS,
            stream="run",
        ),
    ),
    *tagged(
        "Sessions",
        Route("GET /sessions/{session}/changes", show_changes, rights="owner", answer="@BranchChanges", errors=(409,)),
        Route(
            "POST /sessions/{session}/take-over",
            take_over_changes,
            rights="owner",
            answer="@BranchChanges",
            errors=(409,),
            body=Body(TakeOverRequest, {"fingerprint": "0f1e2d", "paths": ["notes.txt"]}),
        ),
    ),
)
