"""Sensitivity labels."""

from __future__ import annotations

import json
from collections.abc import Sequence

from app.storage.changes import Change
from app.storage.labels import CallLabelsEnded, FileLabel, SessionLabel
from app.storage.sql.columns import Write, delete, insert_once, select
from app.storage.sql.rows import Rows

WRITES: dict[type[Change], Write] = {
    SessionLabel: insert_once("session_labels", SessionLabel, "session", "label"),
    FileLabel: insert_once("file_labels", FileLabel, "workspace", "path", "label", "call"),
    CallLabelsEnded: delete("file_labels", CallLabelsEnded),
}
OF_SESSIONS = select(
    SessionLabel, "session_labels", "WHERE session IN (SELECT value FROM json_each(?)) ORDER BY at, label"
)
OF_FILES = select(FileLabel, "file_labels", "WHERE workspace = ?")


class SqlLabels(Rows):
    async def session_labels(self, sessions: Sequence[str]) -> list[SessionLabel]:
        return await self._rows(OF_SESSIONS, json.dumps(list(sessions)))

    async def file_labels(self, workspace: str) -> list[FileLabel]:
        return await self._rows(OF_FILES, workspace)
