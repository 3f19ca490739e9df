"""Branches of a session: made by a fork, shown with it, deleted together."""

from __future__ import annotations

import hashlib
from typing import Any

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from app.core.attachments import File
from app.core.messages import Message
from app.core.strict_model import StrictModel
from app.runs.branching.forking import Cut, Forking
from app.runs.branching.tree import partings
from app.storage.principals import Principal
from app.storage.runs import RunRow
from app.transcript.run_request import NotFound
from routes.deletion import delete_conversation
from routes.http.library.listing import write_list
from routes.protocol.errors import ASCIIResponse
from routes.protocol.requests import key_of, read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import Services, current_principal, services_of


class ForkRequest(StrictModel):
    """The body of POST /sessions/{id}/fork: the run before which, or after which, the branch begins."""

    before: str | None = Field(default=None, min_length=1, max_length=64)
    after: str | None = Field(default=None, min_length=1, max_length=64)

    @model_validator(mode="after")
    def _sensible(self) -> ForkRequest:
        if (self.before is None) == (self.after is None):
            raise ValueError("send before or after, with the id of a run of the session")
        return self


async def fork_session(request: Request) -> Response:
    """Begin a branch of a conversation before or after one of its runs.

    A [branch](#branches) is a session with the history up to there; nothing runs in it yet.
    """
    services, principal = services_of(request), current_principal(request)
    session = request.path_params["session"]
    await services.runs.session(session, principal)
    body = await read_fields(request, ForkRequest, services.settings.max_message_bytes)
    cut = Cut(body.after or body.before or "", body.after is not None)
    key = key_of(request, hashlib.sha256(f"fork {session} {cut.is_after} {cut.run}".encode()).hexdigest())
    row = await Forking(services.runs, services.store, services.factory.scratch).fork(principal, session, cut, key)
    await write_list(services, principal.name, [])
    content = {"id": row.id, "title": row.title, "created": row.created} | await branch_fields(services, row.id)
    return ASCIIResponse(content, 201, {"X-Session-Id": row.id})


async def branch_fields(services: Services, session: str) -> dict[str, Any]:
    """Return the parent of a session, and the turns at which it has other branches."""
    row = await services.store.branch(session)
    if row is None:
        return {}
    parent = {"session": row.parent, "after": row.after or None} if row.parent else None
    return {"parent": parent, "branches": await partings(services.store, session)}


async def log_fields(services: Services, session: str) -> dict[str, Any]:
    """Return what a page needs of branches. `copies`: documents by the ids that runs before the cut know them by."""
    row = await services.store.branch(session)
    if row is None:
        return {"branches": []}
    documents = [one.id for one in await services.store.documents(session)] if row.parent else []
    copies = {one[:at]: one for one in documents for at, letter in enumerate(one) if letter == "_" and at > len("doc")}
    return {"branches": await partings(services.store, session), "copies": copies}


async def delete_branches(services: Services, principal: Principal, session: str) -> None:
    """Delete a session with all branches of its conversation. Raises NotFound, StoreFailed."""
    row = await services.store.branch(session)
    others = [one.session for one in await services.store.branches(row.tree)] if row else []
    for one in (*(other for other in others if other != session), session):
        await delete_conversation(services, principal, one)


async def files_of_run(services: Services, principal: Principal, run: str, session: str | None) -> list[File]:
    """Return the files of the message that began a run, to be sent again. Raises NotFound, StoreFailed."""
    row = await services.runs.run(run, principal)
    found, message = await _request(services, row, session)
    files = []
    for one in message.attachments if message else ():
        data = await services.store.file(one.sha256, found)
        if data is None:
            raise NotFound(f"The file {one.file_name} of run {run} is no longer kept. Send it again.")
        files.append(File(one, data))
    return files


async def _request(services: Services, row: RunRow, session: str | None) -> tuple[str, Message | None]:
    """The message that began a run, and a session that has it: the run's own, or a branch that outlives it."""
    branch = await services.store.branch(session) if session else None
    others = [one.session for one in await services.store.branches(branch.tree)] if branch else []
    for one in (row.session, *others):
        if message := await services.store.request_of(one, row.id):
            return one, message
    return row.session, None


ROUTES = tagged(
    "Sessions",
    Route(
        "POST /sessions/{session}/fork",
        fork_session,
        rights="owner",
        answer={"id": "text", "title": "text", "created": "number", "parent": "object", "branches": ["object"]},
        statuses=(201,),
        errors=(409,),
        body=Body(ForkRequest, {"before": "run_0123456789abcdef0123"}),
    ),
)
