"""The choice of the database behind `Store`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.storage.changes import StoreFailed
from app.storage.sqlite.store import SQLiteStore
from app.storage.store import Store

DATABASE = "dragoman.db"  # in the data directory
CHECKPOINTS = "checkpoints.db"  # beside it


async def open_store(path: Path, url: str | None = None, *, visitor: bool = False) -> Store:
    """Open or create the database: that of PostgreSQL which `url` names, else a file of SQLite.

    Raises StoreFailed when it is no database or cannot be written.
    Who does not hold the lock of the data directory is a visitor: it may read everything, and change what a running
    server does not hold in memory.
    """
    if url is None:
        return await SQLiteStore.open(path, visitor=visitor)
    with named_driver():  # an extra, and 40 ms of a start
        from app.storage.postgres.store import PostgresStore
    return await PostgresStore.open(url)


@contextmanager
def named_driver() -> Iterator[None]:
    """Import what needs the driver of PostgreSQL. Raises StoreFailed."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name != "asyncpg":
            raise
        why = "PostgreSQL needs the package asyncpg, which is not installed."
        raise StoreFailed(f"{why} Install it with: pip install 'dragoman[postgres]'") from None
