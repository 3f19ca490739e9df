"""/project: the instructions that lie in the caller's workspace, and a person's decision on each."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.config.folders import workspace_of
from app.context.project_files import ReviewedFile
from app.core.strict_model import StrictModel
from app.storage.audit import AuditRow
from app.transcript.run_request import NotFound
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import current_principal, services_of
from tools.base.rights import Role

DECIDED = {"accept": "accepted", "decline": "declined"}


class FileDecisionRequest(StrictModel):
    """The body of POST /project. `digest` is that of the text that was reviewed."""

    path: str = Field(min_length=1, max_length=4096)
    digest: str = Field(min_length=1, max_length=128)
    decision: Literal["accept", "decline"]


def shown(reviewed: ReviewedFile) -> dict[str, Any]:
    """`before` is the text that was decided on before, where that is another one."""
    file, before = reviewed.file, reviewed.before
    fields = {"path": file.path, "state": reviewed.state, "digest": file.digest, "text": file.text}
    also = {"before": before if before != file.text else None, "problem": file.problem or None}
    return fields | {name: value for name, value in also.items() if value is not None}


async def list_files(request: Request) -> Response:
    """The instructions in your workspace.

    `path`, `state` (`new`, `changed`, `accepted`, `declined` or `unusable`), `digest`, `text`, the text `before`. See
    [instructions of a project](context.md#instructions-of-a-project).
    """
    services, principal = services_of(request), current_principal(request)
    workspace = workspace_of(services.settings.workspace, principal)
    files = await asyncio.to_thread(services.factory.project.files, workspace)
    return ASCIIResponse({"files": services.redactor.redact_value(list(map(shown, files)))})


async def decide(request: Request) -> Response:
    """Accept or decline the text of a file. `accept` or `decline`; 409 if the file has changed since."""
    services, principal = services_of(request), current_principal(request)
    if principal.role is Role.GUEST:
        raise Refused(403, "forbidden", f"Guests cannot accept instructions; {principal.name} is a {principal.role}.")
    body = await read_fields(request, FileDecisionRequest, plain=True)
    workspace = workspace_of(services.settings.workspace, principal)
    accept = body.decision == "accept"
    project = services.factory.project
    reviewed = await project.decide(workspace, body.path, body.digest, accept=accept, by=principal.name)
    if reviewed is None:
        raise NotFound(f"The workspace has no instructions {body.path[:200]!r}. GET /project lists them.")
    by, why = principal.name, f"digest {body.digest}"
    audit = AuditRow(time.time(), by, f"project {body.path}", DECIDED[body.decision], why=why, by=by)
    await services.store.write([audit])
    return ASCIIResponse(services.redactor.redact_value(shown(reviewed)))


ROUTES = tagged(
    "Tools and profiles",
    Route("GET /project", list_files, rights="user", answer={"files": ["object"]}),
    Route(
        "POST /project",
        decide,
        rights="not guests",
        answer="object",
        errors=(404, 409),
        body=Body(FileDecisionRequest, {"path": "AGENTS.md", "digest": "0" * 64, "decision": "accept"}),
    ),
)
