"""The files of an open SQLite database: deleted, moved, replaced, and how long its journal of writes is."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from app.storage.changes import StoreFailed
from app.storage.database import DATABASE
from app.storage.sqlite.database import PAGE, SHORT_LOG
from app.storage.sqlite.open_files import LOOK_S, OpenFiles
from app.storage.sqlite.store import SQLiteStore
from app.storage.state import StateRow

pytestmark = pytest.mark.anyio

LOG = f"{DATABASE}-wal"


async def put(store: SQLiteStore, value: str, name: str = "x") -> None:
    await store.write([StateRow(name, value)])


async def opened(folder: Path, value: str) -> SQLiteStore:
    store = await SQLiteStore.open(folder / DATABASE)
    await put(store, value)
    return store


async def value_in(folder: Path) -> str | None:
    store = await SQLiteStore.open(folder / DATABASE)
    try:
        return await store.state("x")
    finally:
        await store.close()


async def refused(store: SQLiteStore) -> str:
    """What a look at the store says, and every write behind it."""
    with pytest.raises(StoreFailed) as failure:
        await store.check()
    for _ in range(2):
        with pytest.raises(StoreFailed, match="nothing that it writes now would last"):
            await put(store, "lost")
    with pytest.raises(StoreFailed, match="nothing that it writes now would last"):
        await store.delete_session("ses_1")
    return str(failure.value)


async def test_a_deleted_folder_is_noticed_and_nothing_more_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    store = await opened(folder, "kept")
    shutil.rmtree(folder)
    words = await refused(store)
    assert str(folder / DATABASE) in words and "restart the server" in words
    assert await store.state("x") == "kept"  # what it has can still be read
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [words]  # once
    await store.close()
    assert not folder.exists()


async def test_a_folder_that_is_put_back_goes_on_where_it_was(tmp_path: Path) -> None:
    folder, away = tmp_path / "data", tmp_path / "away"
    store = await opened(folder, "before")
    folder.rename(away)
    await refused(store)
    away.rename(folder)
    await put(store, "after")
    await store.check()
    await store.close()
    assert await value_in(folder) == "after"


async def test_another_database_in_its_place_is_not_written_to(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    store = await opened(folder, "old")
    folder.rename(tmp_path / "away")
    await (await opened(folder, "new")).close()
    await refused(store)
    await store.close()
    assert (await value_in(folder), await value_in(tmp_path / "away")) == ("new", "old")


def as_killed(folder: Path) -> Path:
    """A copy of the files as a kill would leave them: nothing is closed."""
    copy = folder / "copy"
    copy.mkdir()
    for path in folder.glob(f"{DATABASE}*"):
        shutil.copy(path, copy)
    return copy


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
async def test_of_a_journal_that_was_removed_nothing_acknowledged_is_lost(tmp_path: Path, ending: str) -> None:
    store = await opened(tmp_path, "kept")
    (tmp_path / f"{DATABASE}{ending}").unlink()
    await refused(store)
    assert await value_in(as_killed(tmp_path)) == "kept"
    await store.close()


def test_the_files_are_looked_at_once_in_a_while(tmp_path: Path) -> None:
    now, path = 0.0, tmp_path / DATABASE
    path.touch()
    files = OpenFiles(path, lambda: now)
    files.remember()
    assert files.gone() is None
    path.unlink()
    assert files.gone() is None and files.gone(at_once=True) == path
    path.touch()
    files.remember()
    assert files.gone() is None
    path.rename(tmp_path / "away")
    assert files.gone() is None
    now += LOOK_S
    assert files.gone() == path
    (tmp_path / "away").rename(path)
    assert files.gone() is None  # at once, since it was missed


async def test_a_quiet_database_keeps_no_long_journal(tmp_path: Path) -> None:
    store, log = await opened(tmp_path, "kept"), tmp_path / LOG
    await put(store, "x" * (SHORT_LOG * PAGE + 1), "long")
    assert log.stat().st_size > SHORT_LOG * PAGE
    async with asyncio.timeout(100):
        while log.stat().st_size:
            await asyncio.to_thread(log.stat)  # not a look into the database: its reader keeps the journal
    await put(store, "after", "other")
    assert 0 < log.stat().st_size < SHORT_LOG * PAGE
    await store.close()
    assert await value_in(tmp_path) == "kept"


async def test_a_journal_that_is_short_beside_its_database_stays(tmp_path: Path) -> None:
    store = await opened(tmp_path, "short")
    log = tmp_path / LOG
    before = log.stat().st_size
    await store._shorten_log()
    assert log.stat().st_size == before > 0
    await store.close()
