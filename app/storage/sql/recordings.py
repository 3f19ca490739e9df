"""Parts of recordings."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.recordings import RecordingRow, RunCounts
from app.storage.sql.columns import Select, Write, insert_once, select
from app.storage.sql.rows import Rows

WRITES: dict[type[Change], Write] = {RecordingRow: insert_once("recordings", RecordingRow, "run", "at")}
PARTS = select(RecordingRow, "recordings", "WHERE run = ? ORDER BY at")
RUN_COUNTS = Select(
    """
    SELECT COUNT(*), (
        SELECT data FROM recordings JOIN runs AS recorded ON recorded.id = recordings.run WHERE kind = 'begin'
        ORDER BY recorded.created DESC LIMIT 1
    ) FROM runs WHERE ended IS NOT NULL
    """,
    RunCounts,
)


class SqlRecordings(Rows):
    async def recording(self, run: str) -> list[RecordingRow]:
        return await self._rows(PARTS, run)
