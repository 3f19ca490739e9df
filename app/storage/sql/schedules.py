"""Schedules, triggers and their occurrences."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.schedules import (
    OccurrenceOfRun,
    OccurrenceRow,
    OccurrencesTrimmed,
    ScheduleMoved,
    ScheduleRemoved,
    ScheduleRow,
    TriggerMoved,
    TriggerRemoved,
    TriggerRow,
)
from app.storage.sql.columns import Select, Write, delete, insert_once, names, select, update, upsert, write
from app.storage.sql.rows import Rows

WRITES: dict[type[Change], Write] = {
    ScheduleRow: upsert("schedules", ScheduleRow, "id"),
    ScheduleMoved: update("schedules", ScheduleMoved, "id"),
    ScheduleRemoved: delete("schedules", ScheduleRemoved),
    TriggerRow: upsert("triggers", TriggerRow, "id"),
    TriggerMoved: update("triggers", TriggerMoved, "id"),
    TriggerRemoved: delete("triggers", TriggerRemoved),
    OccurrenceRow: insert_once("occurrences", OccurrenceRow, "origin", "occurrence"),
    OccurrencesTrimmed: write(
        """
        DELETE FROM occurrences WHERE origin = ? AND rowid NOT IN
        (SELECT rowid FROM occurrences WHERE origin = ? ORDER BY at DESC, rowid DESC LIMIT ?)
        """,
        "origin",
        "origin",
        "kept",
    ),
}
SCHEDULES = select(ScheduleRow, "schedules", "ORDER BY created, id")
TRIGGERS = select(TriggerRow, "triggers", "WHERE principal = ? ORDER BY created, id")
TRIGGER = select(TriggerRow, "triggers", "WHERE id = ?")
OCCURRENCES = Select(
    f"""
    SELECT {names(OccurrenceRow, "occurrences")}, runs.state, runs.ended
    FROM occurrences LEFT JOIN runs ON runs.id = occurrences.run
    WHERE origin = ? ORDER BY occurrences.at DESC, occurrences.rowid DESC
    """,
    OccurrenceOfRun,
)


class SqlSchedules(Rows):
    async def schedules(self) -> list[ScheduleRow]:
        return await self._rows(SCHEDULES)

    async def triggers(self, principal: str) -> list[TriggerRow]:
        return await self._rows(TRIGGERS, principal)

    async def trigger(self, trigger: str) -> TriggerRow | None:
        return await self._row(TRIGGER, trigger)

    async def occurrences(self, origin: str) -> list[OccurrenceOfRun]:
        return await self._rows(OCCURRENCES, origin)
