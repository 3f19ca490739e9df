"""The choice of the database behind `Store`."""

from __future__ import annotations

from pathlib import Path

from app.storage.sqlite.store import SQLiteStore
from app.storage.store import Store

DATABASE = "dragoman.db"  # in the data directory


async def open_store(path: Path, *, visitor: bool = False) -> Store:
    """Open or create the database. Raises StoreFailed when the file is not a database or cannot be written.

    Who does not hold the lock of the data directory is a visitor: it may read everything, and change what a running
    server does not hold in memory.
    """
    return await SQLiteStore.open(path, visitor=visitor)
