"""Operations on the caller's workspace."""

from __future__ import annotations

from routes.http.workspace.writing import MoveRequest, NewWorkspaceFolder
from routes.openapi.operation import Operation, Query, rows

ENTRY = {
    "name": "text",
    "path": "text",
    "kind": "text",
    "modified": "number",
    "size?": "integer",
    "private?": "boolean",
}
CONFLICT = Query("conflict", "where a file of that name is there: refuse (as without it), replace or keep_both")
OPERATIONS = rows(
    "Workspace",
    Operation(
        "GET /workspace",
        "The entries of a folder of your workspace, or those whose name contains some words",
        {
            "path": "text",
            "entries": [ENTRY],
            "more": "integer",
            "whole": "boolean",
            "can": {"write": "boolean", "undo": "boolean"},
            "max_upload_bytes": "integer",
        },
        errors=(400, 403, 404),
        query=(
            Query("path", "a folder; without it the workspace itself"),
            Query("start", "the number of entries to leave out", "integer"),
            Query("q", "words that the names contain"),
            Query("hidden", "true: also names that begin with a dot"),
        ),
    ),
    Operation(
        "GET /workspace/archive",
        "A folder of your workspace as a ZIP archive",
        media=("application/zip",),
        errors=(403, 404, 413),
        query=(Query("path", "a folder; without it the workspace itself"),),
    ),
    Operation(
        "POST /workspace/folders",
        "Make a folder",
        {"path": "text"},
        NewWorkspaceFolder,
        "not guests",
        ok=(201,),
        errors=(403, 409),
        example={"path": "notes/2027"},
    ),
    Operation(
        "POST /workspace/moves",
        "Give a file or folder another name or place",
        {"old": "text", "path": "text"},
        MoveRequest,
        "not guests",
        errors=(403, 404, 409),
        example={"old": "notes.txt", "new": "notes/old.txt"},
    ),
    Operation(
        "POST /workspace/changes/{change}/undo",
        "Undo a removal or a replacement of your own",
        "@Changes",
        rights="owner",
        errors=(403, 409),
    ),
    Operation(
        "GET /workspace/files/{path:path}",
        "A file of your workspace",
        media=("application/octet-stream",),
        ok=(200, 206, 304),
        errors=(403, 404, 416),
    ),
    Operation(
        "PUT /workspace/files/{path:path}",
        "Put a file into your workspace: the body is its content",
        {"path": "text", "size": "integer", "replaced": "boolean", "change": "text?"},
        rights="not guests",
        ok=(200, 201),
        errors=(400, 403, 408, 409, 413, 422),
        query=(CONFLICT,),
        takes_file=True,
    ),
    Operation(
        "DELETE /workspace/files/{path:path}",
        "Remove a file, or a folder with all that is in it",
        {"path": "text", "removed": "integer", "change": "text?"},
        rights="not guests",
        errors=(403, 404, 409),
    ),
)
