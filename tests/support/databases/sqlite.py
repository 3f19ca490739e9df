"""A store in SQLite as these tests need it: quiet, looked into, full."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from app.core.events import RunFinished, TextDelta, encode
from app.storage.runs import EventRow
from app.storage.sqlite import store as sqlite_store
from app.storage.sqlite.store import SQLiteStore
from tests.support.databases.earlier import set_pragma
from tests.support.server.serving import Served

FINISHED = encode(RunFinished("answered", "", 1, 0, {}))


def text_row(run: str, seq: int) -> EventRow:
    return EventRow(run, seq, TextDelta.type, encode(TextDelta(f"{seq} ")))


@asynccontextmanager
async def quiet_store(folder: Path, *, visitor: bool = False, quiet_s: float = math.inf) -> AsyncIterator[SQLiteStore]:
    """A store that does nothing by itself if nothing is written for a moment: these tests say what waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_store, "QUIET_S", quiet_s)
        async with asyncio.timeout(30):
            store = await SQLiteStore.open(folder / "test.db", visitor=visitor)
            try:
                yield store
            finally:
                await store.close()


def row_count(folder: Path, table: str) -> int:
    with closing(sqlite3.connect(folder / "test.db")) as database:
        number = database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
    assert isinstance(number, int)
    return number


@asynccontextmanager
async def full_disk(served: Served) -> AsyncGenerator[None, None]:
    """While open, the database has a few pages left."""
    store = served.services.store
    assert isinstance(store, SQLiteStore)
    [[pages]] = await store._writer.execute_fetchall("PRAGMA page_count")
    await set_pragma(store, f"max_page_count = {pages + 12}")
    yield
    await set_pragma(store, "max_page_count = 1000000")
