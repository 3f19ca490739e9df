"""GET /workspace ...: the tree of the caller's workspace, a file of it, and a folder as an archive."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from app.transcript.run_request import NotFound
from app.workspace.archive import Archive, TooLarge, archive_of, blocks_of
from app.workspace.open_file import open_file
from app.workspace.tree import find_names, list_folder
from routes.http.workspace.rights import may_write, readable_workspace
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.file_answer import SANDBOXED, FileAnswer
from routes.protocol.route import Query, Route, tagged
from routes.services import current_principal, services_of
from tools.base.outcome import ToolFailed

MOST_WORDS = 200  # characters of a search
YES = frozenset({"true", "1", "yes"})


async def show_folder(request: Request) -> Response:
    """The entries of a folder of your workspace, or those whose name contains some words.

    Folders first, 500 at a time, or with `q` up to 200 anywhere below: `name`, `path`, `kind` (`folder`, `file`, `link`
    or `other`), `size`, `modified`, and `private` if it is neither sent nor changed. `more` counts the rest, `whole` is
    false where a limit ended it. `can` says if you may `write`, and if a removal can be undone. See [the
    workspace](tools.md#the-workspace).
    """
    services, principal = services_of(request), current_principal(request)
    workspace, query = await readable_workspace(request), request.query_params
    hidden, words = query.get("hidden", "").lower() in YES, query.get("q", "").strip()
    start = query.get("start", "0")
    if not start.isascii() or not start.isdigit() or len(start) > 9:
        raise Refused(400, "invalid_request", "start: a whole number from 0, such as 500")
    path = query.get("path", "").lstrip("/")
    try:
        if words:
            found = await asyncio.to_thread(find_names, workspace, words[:MOST_WORDS], hidden=hidden)
        else:
            found = await asyncio.to_thread(list_folder, workspace, path, hidden=hidden, start=int(start))
    except ToolFailed as failure:
        raise NotFound(str(failure)) from None
    can = {"write": await may_write(services, principal), "undo": services.checkpoints is not None}
    about = {"path": path, "can": can, "max_upload_bytes": services.settings.max_upload_bytes}
    return ASCIIResponse(about | to_builtins(found))


async def show_file(request: Request) -> Response:
    """A file of your workspace.

    With `Range` and `ETag`, for those who may use `read_file`. See [files](tools.md#files-that-calls-make).
    """
    return await answer_file(request, await readable_workspace(request))


async def answer_file(request: Request, workspace: Path) -> Response:
    """The file that the request names. Raises NotSent, Refused, NotFound."""
    try:
        file = await asyncio.to_thread(open_file, workspace, request.path_params["path"])
    except ToolFailed as failure:
        raise NotFound(str(failure)) from None
    try:
        return FileAnswer(request, file)
    except Refused:
        os.close(file.handle)
        raise


async def download_folder(request: Request) -> Response:
    """A folder of your workspace as a ZIP archive.

    At most 20,000 files and 2 GB, without links, private files and folders that programs make again.
    """
    workspace = await readable_workspace(request)
    try:
        archive = await asyncio.to_thread(archive_of, workspace, request.query_params.get("path", ""))
    except TooLarge as error:
        raise Refused(413, "too_large", str(error)) from None
    except ToolFailed as failure:
        raise NotFound(str(failure)) from None
    name = quote(archive.name.encode(errors="replace"), safe="")
    headers = {"Content-Disposition": f"attachment; filename=\"folder.zip\"; filename*=UTF-8''{name}"} | SANDBOXED
    return StreamingResponse(_blocks(archive), media_type="application/zip", headers=headers)


async def _blocks(archive: Archive) -> AsyncIterator[bytes]:
    """The archive, made in threads as fast as it is taken."""
    with closing(blocks_of(archive)) as blocks:
        while block := await asyncio.to_thread(next, blocks, b""):
            yield block


ENTRY = {
    "name": "text",
    "path": "text",
    "kind": "text",
    "modified": "number",
    "size?": "integer",
    "private?": "boolean",
}
ROUTES = tagged(
    "Workspace",
    Route(
        "GET /workspace",
        show_folder,
        rights="user",
        answer={
            "path": "text",
            "entries": [ENTRY],
            "more": "integer",
            "whole": "boolean",
            "can": {"write": "boolean", "undo": "boolean"},
            "max_upload_bytes": "integer",
        },
        errors=(404,),
        query=(
            Query("path", "a folder; without it the workspace itself"),
            Query("start", "the number of entries to leave out", "integer"),
            Query("q", "words that the names contain"),
            Query("hidden", "true: also names that begin with a dot"),
        ),
    ),
    Route(
        "GET /workspace/archive",
        download_folder,
        rights="user",
        errors=(404, 413),
        query=(Query("path", "a folder; without it the workspace itself"),),
        media=("application/zip",),
    ),
    Route(
        "GET /workspace/files/{path:path}",
        show_file,
        rights="user",
        statuses=(200, 206, 304),
        errors=(416,),
        media=("application/octet-stream",),
    ),
)
