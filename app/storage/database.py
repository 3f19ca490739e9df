"""The choice of the database behind `Store`."""

from __future__ import annotations

from pathlib import Path

from app.storage.sqlite.store import SQLiteStore
from app.storage.store import Store

DATABASE = "dragoman.db"  # in the data directory


async def open_store(path: Path) -> Store:
    """Open or create the database. Raises StoreFailed when the file is not a database or cannot be written."""
    return await SQLiteStore.open(path)
