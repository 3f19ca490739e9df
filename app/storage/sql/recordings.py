"""Parts of recordings."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.recordings import RecordingRow
from app.storage.sql.columns import Write, insert_once, select
from app.storage.sql.rows import Rows

WRITES: dict[type[Change], Write] = {RecordingRow: insert_once("recordings", RecordingRow, "run", "at")}
PARTS = select(RecordingRow, "recordings", "WHERE run = ? ORDER BY at")


class SqlRecordings(Rows):
    async def recording(self, run: str) -> list[RecordingRow]:
        return await self._rows(PARTS, run)
