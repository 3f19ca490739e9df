"""The routes of the list of conversations, a row each."""

from __future__ import annotations

from routes.http import branches, sessions
from routes.http.library import compaction, folders, shared, shares
from routes.protocol.application import Route

LIBRARY = (
    Route("/sessions", sessions.list_sessions),
    Route("/sessions/{session}", sessions.show_session),
    Route("/sessions/{session}", sessions.change_session, methods=["PATCH"]),
    Route("/sessions/{session}", sessions.delete_session, methods=["DELETE"]),
    Route("/sessions/{session}/fork", branches.fork_session, methods=["POST"]),
    Route("/sessions/{session}/compact", compaction.compact_session, methods=["POST"]),
    Route("/folders", folders.list_folders),
    Route("/folders", folders.add_folder, methods=["POST"]),
    Route("/folders/{folder}", folders.rename_folder, methods=["PATCH"]),
    Route("/folders/{folder}", folders.delete_folder, methods=["DELETE"]),
    Route("/sessions/{session}/shares", shares.share_session, methods=["POST"]),
    Route("/shares", shares.list_shares),
    Route("/shares/{share}", shares.update_share, methods=["POST"]),
    Route("/shares/{share}", shares.revoke_share, methods=["DELETE"]),
    Route("/shared/{token}", shared.show_shared),
    Route("/shared/{token}/files/{sha256}", shared.shared_file),
)
