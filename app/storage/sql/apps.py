"""States of apps."""

from __future__ import annotations

from app.storage.apps import AppContextRead, AppState
from app.storage.changes import Change
from app.storage.sql.columns import Write, select, upsert, write
from app.storage.sql.rows import Rows

WRITES: dict[type[Change], Write] = {
    AppState: upsert("app_states", AppState, "run", "call"),
    AppContextRead: write(
        "UPDATE app_states SET context = '' WHERE run = ? AND call = ? AND context = ?", "run", "call", "context"
    ),
}
STATE = select(AppState, "app_states", "WHERE run = ? AND call = ?")
CONTEXTS = select(AppState, "app_states", "WHERE session = ? AND context <> '' ORDER BY run, call")


class SqlApps(Rows):
    async def app_state(self, run: str, call: str) -> AppState | None:
        return await self._lookup_changed(STATE, run, call)
