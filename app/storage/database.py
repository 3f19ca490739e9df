"""The choice of the database behind `Store`."""

from __future__ import annotations

from pathlib import Path

from app.storage.checkpoints import CheckpointStore
from app.storage.sqlite.checkpoints import SQLiteCheckpoints
from app.storage.sqlite.store import SQLiteStore
from app.storage.store import Store

DATABASE = "dragoman.db"  # in the data directory
CHECKPOINTS = "checkpoints.db"  # beside it


async def open_store(path: Path, *, visitor: bool = False) -> Store:
    """Open or create the database. Raises StoreFailed when the file is not a database or cannot be written.

    Who does not hold the lock of the data directory is a visitor: it may read everything, and change what a running
    server does not hold in memory.
    """
    return await SQLiteStore.open(path, visitor=visitor)


def open_checkpoints(path: Path) -> CheckpointStore:
    """Return the store of checkpoints, whose file is made with the first of them."""
    return SQLiteCheckpoints(path)
