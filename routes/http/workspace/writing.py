"""PUT, POST and DELETE /workspace ...: a person's own changes of the workspace, audited, and undone where they can be.

A run's labels of files are about paths: what is moved takes its labels along, and a file that is uploaded over another
one keeps them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from pydantic import Field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from app.checkpoints.person_changes import kept_change
from app.checkpoints.report import report
from app.checkpoints.undo import undo_run
from app.config.folders import PEOPLE
from app.core.labels import Labels
from app.core.strict_model import StrictModel
from app.storage.audit import AuditRow
from app.transcript.run_request import NotFound
from app.workspace.changing import changeable, make_folder, move, remove
from app.workspace.uploads import Conflict, Upload
from routes.http.workspace.rights import writable_workspace
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.raw_body import NO_MORE
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Query, Route, tagged
from routes.services import Services, current_principal, services_of
from tools.base.outcome import ToolFailed
from tools.base.rights import Role

SILENCE_S = 60.0  # between two pieces of an upload
MAX_BODY = 64 * 1024
ACTION = "workspace"  # in the audit log
Result = TypeVar("Result")


class NewWorkspaceFolder(StrictModel):
    """The body of POST /workspace/folders."""

    path: str = Field(min_length=1, max_length=4096)


class MoveRequest(StrictModel):
    """The body of POST /workspace/moves."""

    old: str = Field(min_length=1, max_length=4096)
    new: str = Field(min_length=1, max_length=4096)


async def upload(request: Request) -> Response:
    """Put a file into your workspace: the body is its content.

    Whole or not at all, with the folders above it: 201, or 409 `file_exists` where there is one, unless `conflict` is
    `replace` (200; `change` is for the undo) or `keep_both` (`notes (2).txt`).
    """
    workspace, conflict = await writable_workspace(request), _conflict(request)
    services, principal = services_of(request), current_principal(request)
    most = services.settings.max_upload_bytes
    message = f"A file for the workspace has at most {most:,} bytes (max_upload_bytes)."
    too_long = Refused(413, "too_long", message, NO_MORE)
    if int(request.headers.get("content-length") or 0) > most:
        raise too_long
    parts = _changeable(request, workspace, request.path_params["path"])
    taken = await _in_thread(Upload, workspace, parts)
    try:
        size = 0
        async with aclosing(_pieces(request)) as pieces:
            async for piece in pieces:
                size += len(piece)
                if size > most:
                    raise too_long
                await _in_thread(taken.write, piece)
        services.presence.check(principal)  # a long body may take its time
        services.switch.check()
        place = partial(taken.place, conflict)
        if conflict == "replace":
            (path, replaced), change = await _kept(request, workspace, "/".join(parts), place)
        else:
            (path, replaced), change = await _in_thread(place), None
    finally:
        await asyncio.to_thread(taken.close)
    await _audit(request, f"{'replaced' if replaced else 'uploaded'} {path} ({size:,} bytes)")
    return ASCIIResponse({"path": path, "size": size, "replaced": replaced, "change": change}, 200 if replaced else 201)


async def delete(request: Request) -> Response:
    """Remove a file, or a folder with all that is in it.

    Or a link. `removed` counts the entries, `change` is for the undo, null where it cannot be undone.
    """
    workspace = await writable_workspace(request)
    parts = _changeable(request, workspace, request.path_params["path"])
    count, change = await _kept(request, workspace, "/".join(parts), partial(remove, workspace, parts))
    await _audit(request, f"removed {'/'.join(parts)} ({count:,} files and folders)")
    return ASCIIResponse({"path": "/".join(parts), "removed": count, "change": change})


async def add_folder(request: Request) -> Response:
    """Make a folder."""
    workspace = await writable_workspace(request)
    wanted = await read_fields(request, NewWorkspaceFolder, MAX_BODY)
    parts = _changeable(request, workspace, wanted.path)
    await _in_thread(make_folder, workspace, parts)
    await _audit(request, f"made the folder {'/'.join(parts)}")
    return ASCIIResponse({"path": "/".join(parts)}, 201)


async def move_entry(request: Request) -> Response:
    """Give a file or folder another name or place.

    Over nothing (409 `file_exists`); its [labels](labels.md) go with it.
    """
    workspace = await writable_workspace(request)
    wanted = await read_fields(request, MoveRequest, MAX_BODY)
    old, new = (_changeable(request, workspace, path) for path in (wanted.old, wanted.new))
    was, now = "/".join(old), "/".join(new)
    await _label(services_of(request), workspace, was, now)  # before: what is read must never be without
    await _in_thread(move, workspace, old, new)
    await _audit(request, f"moved {was} to {now}")
    return ASCIIResponse({"old": was, "path": now})


async def undo_change(request: Request) -> Response:
    """Undo a removal or a replacement of your own. Of the last seven days, like that of a run."""
    services, principal, change = services_of(request), current_principal(request), request.path_params["change"]
    checkpoints = services.checkpoints
    row = await asyncio.to_thread(checkpoints.store.row, change) if checkpoints else None
    if checkpoints is None or row is None or row.session or row.principal != principal.name:
        raise NotFound(f"There is no change {change[:80]!a} that could be undone. It may be too old.")
    await writable_workspace(request)
    await _audit(request, f"undo of {change}")
    await undo_run(checkpoints, change, principal.name)
    return ASCIIResponse(await asyncio.to_thread(report, checkpoints.store, change))


def _conflict(request: Request) -> Conflict:
    given = request.query_params.get("conflict", "refuse")
    if given not in get_args(Conflict):
        raise Refused(400, "invalid_request", f"conflict: one of {', '.join(get_args(Conflict))}")
    return cast(Conflict, given)


def _changeable(request: Request, workspace: Path, path: str) -> tuple[str, ...]:
    people = PEOPLE if current_principal(request).role is Role.ADMIN else ""
    with _explained():
        return changeable(workspace, path, people=people)


async def _pieces(request: Request) -> AsyncGenerator[bytes, None]:
    """The body, piece by piece. Raises Refused with 400 (cut) or 408 (silent)."""
    stream = request.stream().__aiter__()
    try:
        while True:
            async with asyncio.timeout(SILENCE_S):
                piece = await anext(stream, None)
            if piece is None:
                return
            if piece:
                yield piece
    except TimeoutError:
        message = f"No part of the file arrived for {SILENCE_S:g} s. Send it faster."
        raise Refused(408, "body_slow", message, NO_MORE) from None
    except ClientDisconnect:
        raise Refused(400, "body_cut", "The connection closed before the whole file had arrived.") from None


async def _kept(
    request: Request, workspace: Path, path: str, change: Callable[[], Result]
) -> tuple[Result, str | None]:
    name, checkpoints = current_principal(request).name, services_of(request).checkpoints
    with _explained():
        return await kept_change(checkpoints, name, workspace, path, change)


async def _in_thread(work: Callable[..., Result], *given: Any) -> Result:
    with _explained():
        return await asyncio.to_thread(work, *given)


@contextmanager
def _explained() -> Iterator[None]:
    """Raises NotFound, Refused for a change that cannot be made."""
    try:
        yield
    except ToolFailed as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise NotFound(str(error)) from None
        raise Refused(409, "unfit_path", str(error)) from None


async def _label(services: Services, workspace: Path, old: str, new: str) -> None:
    """Give the new path the labels of the old one. Raises StoreFailed."""
    if services.factory.labels is None:
        return
    book = services.factory.labels.book
    labels: Labels = await asyncio.to_thread(lambda: book.of_path(workspace, old) | book.below(workspace, old))
    if labels:
        await services.store.write(book.label_files(workspace, [new], labels))


async def _audit(request: Request, what: str) -> None:
    services, name = services_of(request), current_principal(request).name
    await services.store.write([AuditRow(time.time(), name, ACTION, "allow", why=what, by=name)])


ROUTES = tagged(
    "Workspace",
    Route(
        "POST /workspace/folders",
        add_folder,
        rights="not guests",
        answer={"path": "text"},
        statuses=(201,),
        errors=(409,),
        body=Body(NewWorkspaceFolder, {"path": "notes/2027"}),
    ),
    Route(
        "POST /workspace/moves",
        move_entry,
        rights="not guests",
        answer={"old": "text", "path": "text"},
        errors=(404, 409),
        body=Body(MoveRequest, {"old": "notes.txt", "new": "notes/old.txt"}),
    ),
    Route("POST /workspace/changes/{change}/undo", undo_change, rights="owner", answer="@Changes", errors=(409,)),
    Route(
        "PUT /workspace/files/{path:path}",
        upload,
        rights="not guests",
        answer={"path": "text", "size": "integer", "replaced": "boolean", "change": "text?"},
        statuses=(200, 201),
        errors=(400, 408, 409, 413, 422),
        takes_file=True,
        query=(Query("conflict", "where a file of that name is there: refuse (as without it), replace or keep_both"),),
    ),
    Route(
        "DELETE /workspace/files/{path:path}",
        delete,
        rights="not guests",
        answer={"path": "text", "removed": "integer", "change": "text?"},
        errors=(409,),
    ),
)
