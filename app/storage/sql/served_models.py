"""Served models."""

from __future__ import annotations

from msgspec.structs import replace

from app.storage.changes import Change
from app.storage.served_models import ServedModelRemoved, ServedModelRow
from app.storage.sql.columns import Write, delete, select, upsert
from app.storage.sql.rows import Rows

WRITES: dict[type[Change], Write] = {
    ServedModelRow: upsert("served_models", ServedModelRow, "name"),
    ServedModelRemoved: delete("served_models", ServedModelRemoved),
}
SERVED_MODELS = select(ServedModelRow, "served_models", "ORDER BY at, name")


class SqlServedModels(Rows):
    async def served_models(self) -> list[ServedModelRow]:
        rows = await self._rows(SERVED_MODELS)  # SQLite has no booleans
        return [replace(row, at_start=bool(row.at_start), forced=bool(row.forced)) for row in rows]
