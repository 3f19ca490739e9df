"""Durable before visible: an event that a watcher has seen is in the database."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.core.deltas import MAX_DELTA, parted
from app.core.events import AgentEvent, RoundStarted, RunFinished, RunStarted, TextDelta, ToolDelta, ToolStarted
from app.log.event_writer import KEPT, EventWriter, RunLog, Watcher
from app.storage.changes import Change, StoreFailed
from app.storage.runs import ALL, EventRow
from app.storage.sessions import ResultRow, SessionRow
from app.storage.sqlite.store import SQLiteStore

pytestmark = pytest.mark.anyio

FINISHED = RunFinished("answered", "", 1, 0, {})


def never() -> None:
    raise AssertionError("the log failed")


async def opened(tmp_path: Path) -> SQLiteStore:
    return await SQLiteStore.open(tmp_path / "data" / "test.db")


class Gate(SQLiteStore):
    """A real store whose writes wait until the test opens them, or fail when it says so."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.open_gate = asyncio.Event()
        self.writing = asyncio.Event()
        self.failure: StoreFailed | None = None

    async def write(self, changes: Sequence[Change]) -> None:
        self.writing.set()
        await self.open_gate.wait()
        if self.failure:
            raise self.failure
        await super().write(changes)


async def gated(tmp_path: Path) -> Gate:
    store = await Gate.open(tmp_path / "test.db")
    assert isinstance(store, Gate)
    return store


async def test_an_event_is_shown_only_after_its_transaction(tmp_path: Path) -> None:
    store = await gated(tmp_path)
    async with asyncio.timeout(30), EventWriter(store) as journal:
        log = RunLog("r", journal, never)
        log.add(TextDelta("hello"))
        await store.writing.wait()
        watcher = asyncio.create_task(log.after(Watcher(0)))
        await asyncio.sleep(0)
        assert not watcher.done()
        assert log.last_seq == 0
        store.open_gate.set()
        rows = await watcher or []
        other = await SQLiteStore.open(tmp_path / "test.db")  # as after a kill: committed, not only written
        assert await other.events("r", 0, 10) == rows
        await other.close()
    await store.close()


async def test_a_watcher_takes_the_event_that_it_waits_for_once_that_is_durable(tmp_path: Path) -> None:
    store, taken = await opened(tmp_path), list[int]()
    reader = sqlite3.connect(tmp_path / "data" / "test.db")

    def take(row: EventRow) -> bool:
        stored = reader.execute("SELECT events FROM event_batches ORDER BY number").fetchall()
        assert stored[-1][0].endswith(row.data)
        if "later" in row.data:
            return False
        taken.append(row.seq)
        return True

    async with asyncio.timeout(30), EventWriter(store) as journal:
        log, watcher, ahead = RunLog("r", journal, never), Watcher(0, take), Watcher(7, take)
        watching, waiting_ahead = (asyncio.create_task(log.after(one)) for one in (watcher, ahead))
        await asyncio.sleep(0)

        async def add(*events: AgentEvent) -> None:
            for event in events:
                log.add(event)
            await journal.flush()

        for word in ("one", "two"):
            await add(TextDelta(word))
            await asyncio.sleep(0)
        assert (taken, watcher.seq, watching.done()) == ([1, 2], 2, False)
        await add(TextDelta("later"))
        assert [row.seq for row in await watching or []] == [3]
        for events in ((TextDelta("together"), ToolStarted("c", "bash", {}, "native")), (FINISHED,)):
            watcher.seq, last = log.last_seq, log.last_seq
            watching = asyncio.create_task(log.after(watcher))
            await asyncio.sleep(0)
            await add(*events)
            assert [row.seq for row in await watching or []] == [last + 1, last + 2][: len(events)]
        assert (taken, await waiting_ahead) == ([1, 2], [])
    reader.close()
    await store.close()


async def test_a_watcher_that_breaks_breaks_neither_the_journal_nor_the_others(tmp_path: Path) -> None:
    store, taken = await opened(tmp_path), list[int]()

    def broken(_: EventRow) -> bool:
        raise KeyError("its own")

    def take(row: EventRow) -> bool:
        taken.append(row.seq)
        return True

    async with asyncio.timeout(30), EventWriter(store) as journal:
        log = RunLog("r", journal, never)
        breaking, watching = (asyncio.create_task(log.after(Watcher(0, write))) for write in (broken, take))
        await asyncio.sleep(0)
        for word in ("one", "two"):
            log.add(TextDelta(word))
            await journal.flush()
        with pytest.raises(KeyError, match="its own"):
            await breaking
        assert taken == [1, 2] and not watching.done()
        watching.cancel()
    await store.close()


async def test_deltas_that_arrive_during_a_write_leave_as_one(tmp_path: Path) -> None:
    store = await gated(tmp_path)
    async with asyncio.timeout(30), EventWriter(store) as journal:
        log = RunLog("r", journal, never)
        log.add(TextDelta("first"))
        await store.writing.wait()
        for piece in ("a", "b", "c"):
            log.add(TextDelta(piece))
        log.add(ToolDelta("c1", "", "bash"))
        log.add(ToolDelta("c1", "ec"))
        log.add(ToolDelta("c1", "ho"))
        log.add(ToolDelta("c2", "x", "bash"))
        log.add(TextDelta("z"))
        store.open_gate.set()
        await journal.flush()
        rows = await store.events("r", 0, ALL)
    fields = [json.loads(row.data) for row in rows]
    assert [row.seq for row in rows] == [1, 2, 3, 4, 5]
    assert [one["text"] for one in fields] == ["first", "abc", "echo", "x", "z"]
    assert fields[2] == {"type": "tool.delta", "call": "c1", "text": "echo", "name": "bash"}
    await store.close()


async def test_what_begins_a_run_leaves_with_its_first_text_or_soon_without(tmp_path: Path) -> None:
    store, written = await opened(tmp_path), list[int]()
    async with (
        asyncio.timeout(30),
        EventWriter(store, observe_commit=lambda _: written.append(log.last_seq)) as journal,
    ):
        log = RunLog("r", journal, never)
        for event in (RunStarted("r", "s", "m", [], {}), RoundStarted(1), TextDelta("a")):
            log.add(event)
            await asyncio.sleep(0)
        assert [row.seq for row in await log.after(Watcher(0)) or []] == [1, 2, 3]
        assert len(written) == 1
        log.add(RoundStarted(2))
        assert [row.seq for row in await log.after(Watcher(3)) or []] == [4]
    await store.close()


async def test_callers_of_flush_wait_for_themselves(tmp_path: Path) -> None:
    store = await gated(tmp_path)
    async with asyncio.timeout(30), EventWriter(store) as journal:
        journal.put(SessionRow("s", "p", 1.0, "t"))
        leaving, staying, late = (asyncio.create_task(journal.flush()) for _ in range(3))
        await store.writing.wait()
        leaving.cancel()
        store.failure = StoreFailed("The disk is full. Make room.")
        store.open_gate.set()
        for task in (staying, late):
            with pytest.raises(StoreFailed, match="Make room"):
                await task
        assert leaving.cancelled()
        store.failure = None
        await journal.flush()
    await store.close()


async def test_a_store_that_fails_ends_the_log_with_one_terminal_event(tmp_path: Path) -> None:
    store = await gated(tmp_path)
    failed = asyncio.Event()
    async with asyncio.timeout(30), EventWriter(store) as journal:
        log = RunLog("r", journal, failed.set)
        log.add(TextDelta("lost"))
        store.failure = StoreFailed("The disk is full. Make room.")
        store.open_gate.set()
        with pytest.raises(StoreFailed, match="Make room"):
            await journal.flush()
        rows = await log.after(Watcher(0))
        assert failed.is_set()
        assert rows
        assert [(row.type, json.loads(row.data)["code"]) for row in rows] == [("run.failed", "storage_failed")]
        store.failure = None
        log.add(FINISHED)  # the watchers have had their end, and what is stored must not have gaps
        log.put(SessionRow("s", "p", 1.0, "t"))
        await journal.flush()
        assert log.ended
        assert [log.failure] == rows
        assert await store.events("r", 0, 10) == []
        assert await store.session("s") is None
    await store.close()


async def test_a_watcher_far_behind_is_sent_to_the_store(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    async with asyncio.timeout(30), EventWriter(store) as journal:
        log = RunLog("r", journal, never)
        for number in range(KEPT + 100):
            log.add(ToolStarted(f"c{number}", "bash", {}, "native"))
        log.add(FINISHED)
        await journal.flush()
        assert await log.after(Watcher(0)) is None
        assert await log.after(Watcher(100)) is None
        rows = await log.after(Watcher(101))
        assert rows
        assert [row.seq for row in rows] == list(range(102, KEPT + 102))
        rows = await log.after(Watcher(KEPT + 98))
        assert rows
        assert [row.seq for row in rows] == list(range(KEPT + 99, KEPT + 102))
        assert len(await store.events("r", 0, 10_000)) == KEPT + 101
    await store.close()


async def test_readers_never_see_an_uncommitted_row(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    async with store._transaction():
        await store._writer.execute("INSERT INTO events VALUES ('r', 1, 'text.delta', '{}', NULL)")
        assert await store.events("r", 0, 10) == []
    assert await store.events("r", 0, 10) == [EventRow("r", 1, "text.delta", "{}")]
    await store.close()


async def test_a_write_is_all_or_nothing(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    session, twice = SessionRow("s", "p", 1.0, "t"), ResultRow("s", "r", "c", "bash", "text")
    with pytest.raises(StoreFailed, match="UNIQUE"):
        await store.write([session, twice, EventRow("r", 1, "x", "{}"), twice])
    assert await store.session("s") is None
    assert await store.result("s", "c", 0, 9) is None
    assert await store.events("r", 0, 10) == []
    await store.write([session, twice])  # and the store still works
    assert await store.session("s") == session
    await store.close()


async def test_a_file_that_is_not_a_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    path.write_bytes(b"not a database at all, but long enough to look at" * 100)
    with pytest.raises(StoreFailed, match=r"test\.db failed: file is not a database.*DRAGOMAN_DATA_DIR"):
        await SQLiteStore.open(path)
    assert path.read_bytes().startswith(b"not a database")


async def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreFailed, match="DRAGOMAN_DATA_DIR"):
        await SQLiteStore.open(tmp_path / "file" / "data" / "test.db")


def test_a_delta_longer_than_clients_read_is_several() -> None:
    text = "x" * (3 * MAX_DELTA + 1)
    assert [len(one.text) for one in parted(TextDelta(text))] == [MAX_DELTA] * 3 + [1]
    pieces = parted(ToolDelta("c1", text, "bash"))
    assert [one.name for one in pieces if isinstance(one, ToolDelta)] == ["bash", None, None, None]
    assert "".join(one.text for one in pieces) == text


async def test_no_delta_in_the_log_is_longer_than_clients_read(tmp_path: Path) -> None:
    store, text = await opened(tmp_path), "\U0001f600" * 200_000
    async with EventWriter(store) as journal:
        log = RunLog("r1", journal, on_failure=never)
        log.add(TextDelta(text))
        rows = log.take_events()
    await store.close()
    assert max(len(row.data) for row in rows) < 1024 * 1024
    assert "".join(json.loads(row.data)["text"] for row in rows) == text
