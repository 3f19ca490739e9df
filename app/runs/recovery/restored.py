"""Runs that a backup shows under way: they went on after it was made."""

from __future__ import annotations

from app.storage.runs import RunRow
from app.storage.state import RESTORED, StateStore

UNKNOWN = (
    "The database was restored from a backup that was made during this run. Its later steps are not in it, so the run "
    "is not continued: it could do things twice. Send the next message."
)


async def is_of_backup(store: StateStore, row: RunRow) -> bool:
    """Return True for a run that began before the database was restored. Raises StoreFailed."""
    return row.created < float(await store.state(RESTORED) or 0)
