"""What the tests of the guards read off a server: its events, its audit, all that it has written down."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.support.server.serving import Served


async def audited(served: Served, by: str) -> list[tuple[str, str]]:
    rows = (await served.client.get("/audit")).json()["audit"]
    return [(row["action"], row["decision"]) for row in rows if row["by"] == by]


def kept(folder: Path) -> bytes:
    """All that the server has written down, but for checkpoints: they are a copy of the workspace's own files."""
    written = (path for path in sorted((folder / "data").rglob("*")) if not path.name.startswith("checkpoints.db"))
    return b"\n".join(path.read_bytes() for path in written if path.is_file())


def rows_kept(folder: Path) -> str:
    """All that is in its database, value by value.

    Without the index of words: it sorts them, and so may put together what nobody wrote together.
    """
    with closing(sqlite3.connect(folder / "data/dragoman.db")) as database:
        database.text_factory = lambda raw: raw.decode("latin1")
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = [name for name in names if not name.startswith("message_words")]
        return "\n".join(
            str(value) for table in tables for row in database.execute(f"SELECT * FROM {table}") for value in row
        )
