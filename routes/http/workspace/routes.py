"""The routes of the caller's workspace, a row each."""

from __future__ import annotations

from routes.http import workspace_files
from routes.http.workspace import browsing, writing
from routes.protocol.application import Route

WORKSPACE = (
    Route("/sessions/{session}/files", workspace_files.list_files),
    Route("/sessions/{session}/workspace/{path:path}", workspace_files.read_file),
    Route("/workspace", browsing.show_folder),
    Route("/workspace/archive", browsing.download_folder),
    Route("/workspace/folders", writing.add_folder, methods=["POST"]),
    Route("/workspace/moves", writing.move_entry, methods=["POST"]),
    Route("/workspace/changes/{change}/undo", writing.undo_change, methods=["POST"]),
    Route("/workspace/files/{path:path}", browsing.show_file),
    Route("/workspace/files/{path:path}", writing.upload, methods=["PUT"]),
    Route("/workspace/files/{path:path}", writing.delete, methods=["DELETE"]),
)
