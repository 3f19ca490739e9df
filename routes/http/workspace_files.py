"""GET /sessions/{session}/files and /workspace/{path}: files that its runs made or changed, and any file's bytes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.core.events import FileChanged
from app.storage.runs import EventRow
from app.workspace.changes import FOLDER_KIND
from app.workspace.open_file import size_now
from routes.http.workspace.browsing import answer_file
from routes.http.workspace.rights import readable_workspace
from routes.protocol.errors import ASCIIResponse
from routes.protocol.route import Route, tagged
from routes.services import current_principal, services_of

MOST_FILES = 500
MOST_EVENTS = 10_000


async def list_files(request: Request) -> Response:
    """The files that its runs made or changed.

    The latest 500: the fields of [`file.changed`](events.md#filechanged), `run`, `size` as it is now, and `available`,
    if it can be fetched; `more` counts the rest.
    """
    services = services_of(request)
    session = await services.runs.session(request.path_params["session"], current_principal(request))
    rows = await services.store.events_of(session.id, FileChanged.type, MOST_EVENTS)
    files = latest(rows)
    workspace = await services.factory.workspace_of(current_principal(request), session.id)
    shown = await asyncio.to_thread(with_size, workspace, files[:MOST_FILES])
    return ASCIIResponse({"files": shown, "more": max(0, len(files) - MOST_FILES)})


def latest(rows: list[EventRow]) -> list[dict[str, Any]]:
    """The last event of each path, newest first."""
    files: dict[str, dict[str, Any]] = {}
    for row in rows:
        fields = json.loads(row.data) | {"run": row.run}
        del fields["type"]
        files.pop(fields["path"], None)
        if fields.get("kind") != FOLDER_KIND:
            files[fields["path"]] = fields
    return [*reversed(files.values())]


def with_size(workspace: Path, files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The files with `available`: whether they can be fetched now, and their size if so."""
    sizes = [size_now(workspace, file["path"]) for file in files]
    return [
        file | {"available": size is not None} | ({} if size is None else {"size": size})
        for file, size in zip(files, sizes, strict=True)
    ]


async def read_file(request: Request) -> Response:
    """A file of your workspace.

    With `Range` and `ETag`, for those who may use `read_file`. See [files](tools.md#files-that-calls-make).
    """
    services, principal = services_of(request), current_principal(request)
    session = await services.runs.session(request.path_params["session"], principal)
    await readable_workspace(request)
    return await answer_file(request, await services.factory.workspace_of(principal, session.id))


ROUTES = tagged(
    "Sessions",
    Route("GET /sessions/{session}/files", list_files, rights="owner", answer={"files": ["object"], "more": "integer"}),
    Route(
        "GET /sessions/{session}/workspace/{path:path}",
        read_file,
        rights="owner",
        statuses=(200, 206, 304),
        errors=(416,),
        media=("application/octet-stream",),
    ),
)
