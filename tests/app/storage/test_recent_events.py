"""Events without rows of their own: read like all others, and found again after a kill."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events import RunFinished, TextDelta, ToolStarted, encode
from app.core.messages import Message, dump
from app.log.log_compaction import joined_rows
from app.storage.runs import EventRow, RunRow
from app.storage.sessions import MessageRow, SessionRow
from app.storage.sqlite import store as sqlite_store
from app.storage.sqlite.connections import ThreadConnection
from app.storage.sqlite.recent_events import MOST_EVENTS, packed, unpacked
from app.storage.sqlite.sessions import SQLiteSessions
from app.storage.sqlite.store import SQLiteStore
from tests.support.databases.sqlite import FINISHED, quiet_store, row_count, text_row

pytestmark = pytest.mark.anyio


def call(run: str, seq: int) -> EventRow:
    return EventRow(run, seq, ToolStarted.type, encode(ToolStarted(f"c{seq}", "bash", {}, "native")))


@given(st.lists(st.booleans(), max_size=50), st.integers(0, 51))
def test_packed_events_are_the_same_behind_every_cursor(calls: list[bool], after: int) -> None:
    events = [(call if one else text_row)("r", seq) for seq, one in enumerate(calls, start=1)]
    rows = list(packed(events))
    assert not [row for row in rows if row.type == ToolStarted.type and row not in events]
    assert list(unpacked([row for row in rows if row.seq > after], after)) == events[after:]


def test_a_row_has_a_bounded_number_of_events_however_many_come_at_once() -> None:
    events = [EventRow("r", seq, "text.delta", "{}") for seq in range(1, 10 * MOST_EVENTS + 2)]
    rows = list(packed(events))
    assert [row.seq for row in rows] == [*range(MOST_EVENTS, 10 * MOST_EVENTS + 1, MOST_EVENTS), events[-1].seq]
    assert list(unpacked(rows, 0)) == events


async def test_the_events_of_many_runs_in_one_write_are_one_row(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        events = [text_row(f"r{number}", 1) for number in range(40)]
        await store.write(events)
        assert [await store.events(one.run, 0, 10) for one in events] == [[one] for one in events]
        assert (row_count(tmp_path, "event_batches"), row_count(tmp_path, "events")) == (1, 0)


@pytest.mark.parametrize("limit", [1, 7, 64, 1000])
async def test_a_long_log_is_read_in_pages_as_it_was_written(tmp_path: Path, limit: int) -> None:
    whole = [(text_row, call)[seq % 50 == 0]("r", seq) for seq in range(1, 5 * MOST_EVENTS + 9)]
    async with quiet_store(tmp_path) as store:
        for row in whole:
            await store.write([row])
        read, rows = list[EventRow](), list[EventRow]()
        while rows := await store.events("r", read[-1].seq if read else 0, limit):
            assert len(rows) <= limit
            read += rows
        assert read == whole
        assert await store.last_seq("r") == len(whole)
        assert await store.started_calls("r") == {f"c{seq}" for seq in range(50, len(whole), 50)}
        assert await store.call_events("r", f"c{len(whole) // 50 * 50}")
        assert row_count(tmp_path, "events") < len(whole) / 10


async def test_a_kill_loses_no_event_and_doubles_none(tmp_path: Path) -> None:
    """Another store reads what the first one has not settled, as the next server does after a kill."""
    whole = [text_row("r", seq) for seq in range(1, MOST_EVENTS + 30)]
    async with quiet_store(tmp_path) as killed:
        for row in [*whole, text_row("other", 1)]:
            await killed.write([row])
        async with quiet_store(tmp_path) as store:
            assert await store.events("r", 0, 1000) == whole
            assert await store.last_seq("r") == len(whole)
            end = EventRow("r", len(whole) + 1, RunFinished.type, FINISHED)
            await store.write([end])
            async with quiet_store(tmp_path) as third:
                assert await third.events("r", 0, 1000) == [*whole, end]
                assert await third.events("other", 0, 10) == [text_row("other", 1)]


async def write_and_tidy(store: SQLiteStore, *batches: list[EventRow]) -> None:
    """Write as many batches as there are commits until the store is tidied, and wait for that."""
    for batch in batches:
        await store.write(batch)
    assert store._tidying
    await asyncio.wait([store._tidying])


async def test_batches_are_deleted_once_they_have_aged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "COMMITS", 10)
    async with quiet_store(tmp_path) as store:
        for begin in (1, 11, 21):
            await write_and_tidy(store, *([text_row("r", seq)] for seq in range(begin, begin + 10)))
        assert row_count(tmp_path, "event_batches") <= 10
        assert await store.events("r", 0, 100) == [text_row("r", seq) for seq in range(1, 31)]


async def test_batches_of_before_are_deleted_from_the_first_of_them_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "COMMITS", 10)
    done = list[str]()
    async with quiet_store(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "test.db")) as database, database:
        database.execute("INSERT INTO event_batches (number, events) VALUES (1000000, '')")
    async with quiet_store(tmp_path) as store:
        assert store._loop_connection
        store._loop_connection._connection.set_trace_callback(done.append)
        for begin in (1, 11):
            await write_and_tidy(store, *([text_row("r", seq)] for seq in range(begin, begin + 10)))
        assert 0 < len([sql for sql in done if sql.startswith("DELETE")]) < 5
        assert row_count(tmp_path, "event_batches") == 10


async def test_a_run_that_is_quiet_gets_rows_before_its_batch_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "COMMITS", 10)
    quiet = [text_row(f"quiet{number}", 1) for number in range(10)]
    async with quiet_store(tmp_path) as store:
        await write_and_tidy(store, *([event] for event in quiet))
        await write_and_tidy(store, *([text_row("r", seq)] for seq in range(1, 11)))
        assert (row_count(tmp_path, "event_batches"), row_count(tmp_path, "events")) == (10, 10)
        await store.write([text_row("quiet0", 2)])
        async with quiet_store(tmp_path) as again:
            assert [await again.events(event.run, 0, 1) for event in quiet] == [[event] for event in quiet]
            assert await again.events("quiet0", 0, 10) == [quiet[0], text_row("quiet0", 2)]
            assert await again.events("r", 0, 100) == [text_row("r", seq) for seq in range(1, 11)]


async def test_batches_of_commits_that_the_thread_makes_are_deleted_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "COMMITS", 10)
    text = encode(TextDelta("x" * 400))
    async with quiet_store(tmp_path) as store:
        for begin in (1, 11, 21):
            seqs = range(begin, begin + 10)
            runs = range(100)
            await write_and_tidy(store, *([EventRow(f"r{n}", seq, TextDelta.type, text) for n in runs] for seq in seqs))
        assert row_count(tmp_path, "event_batches") <= 10


async def test_the_log_of_writes_begins_anew_when_all_of_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "COMMITS", 10)
    async with quiet_store(tmp_path) as store:
        sizes = list[int]()
        for begin in range(1, 200, 10):
            await write_and_tidy(store, *([text_row("r", seq)] for seq in range(begin, begin + 10)))
            sizes.append((tmp_path / "test.db-wal").stat().st_size)
    assert sizes[-1] == sizes[5]


async def test_what_waits_reaches_its_tables_when_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed = asyncio.Event()

    async def index(store: SQLiteStore, pause_s: float = 0.0) -> None:
        await SQLiteSessions._index_messages(store, pause_s)
        indexed.set()

    monkeypatch.setattr(SQLiteStore, "_index_messages", index)
    async with quiet_store(tmp_path, quiet_s=0.0) as store:
        await store.write([SessionRow("s", "ann", 1.0, "t")])
        await store.write([MessageRow("s", 0, "r", dump(Message("user", "a marmot")))])
        assert row_count(tmp_path, "messages") == 0
        await indexed.wait()
        assert (row_count(tmp_path, "messages"), row_count(tmp_path, "message_words_docsize")) == (1, 1)


class Joining(ThreadConnection):
    """Each time that it has read something, the log of run `r` is joined, if `joins` is set."""

    joins: Callable[[], Awaitable[None]] | None = None

    async def _execute(self, *args: Any) -> Any:
        answer = await super()._execute(*args)  # type: ignore[no-untyped-call]
        if self.joins:
            await self.joins()
        return answer


async def test_a_log_that_is_joined_while_it_is_read_has_no_text_twice(tmp_path: Path) -> None:
    whole = [(text_row, call)[seq % 4 == 1]("r", seq) for seq in range(1, 101)]
    packs = [row for at in range(0, len(whole), 18) for row in packed(whole[at : at + 18])]
    async with quiet_store(tmp_path) as store:
        await store.write([RunRow("r", "s", "ann", "m", "running", 1.0)])
        await store.replace_events("r", packs)
        await store._reader.close()
        store._reader = reader = Joining(tmp_path / "test.db")
        await reader
        reader.joins = partial(store.replace_events, "r", joined_rows(whole))
        assert await store.events("r", 0, 50) == whole[:50]


async def test_recent_events_that_are_replaced_get_no_rows_later(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        await store.write([RunRow("r", "s", "ann", "m", "running", 1.0), text_row("r", 1)])
        await store.replace_events("r", [text_row("r", 1)])
        await store.write([text_row("other", 1)])
        await store.forget_before(0.0, 0.0)
        assert await store.events("r", 0, 10) == [text_row("r", 1)]
        assert row_count(tmp_path, "event_batches") == 0


async def test_a_deleted_session_leaves_no_words_in_the_batches(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        await store.write([SessionRow("s", "ann", 1.0, "t"), text_row("r", 1)])
        await store.delete_session("s")
        assert row_count(tmp_path, "event_batches") == 0
        assert await store.events("r", 0, 10) == [text_row("r", 1)]  # of a run that is not of this session


async def test_a_write_waits_for_another_process_and_is_whole(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        with closing(sqlite3.connect(tmp_path / "test.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            writing = asyncio.create_task(store.write([text_row("r", 1), SessionRow("s", "ann", 1.0, "t")]))
            await asyncio.sleep(0)
            assert not writing.done()
            assert await store.events("r", 0, 10) == []
            other.execute("COMMIT")
            await writing
        assert await store.events("r", 0, 10) == [text_row("r", 1)]


async def test_what_a_cancelled_caller_has_written_is_read(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        async with store._one_writer:  # so that the write has to wait
            writing = asyncio.create_task(store.write([text_row("r", 1)]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            writing.cancel()
        await store.write([SessionRow("s", "ann", 1.0, "t")])
        async with store._one_writer:
            assert [row.seq for row in await store.events("r", 0, 10)] == [1]
        async with quiet_store(tmp_path) as again:
            assert [row.seq for row in await again.events("r", 0, 10)] == [1]


async def test_messages_are_found_and_deleted_whether_indexed_or_not(tmp_path: Path) -> None:
    def said(position: int, words: str) -> MessageRow:
        return MessageRow("s", position, "r", dump(Message("user", words)))

    async with quiet_store(tmp_path) as store:
        await store.write([SessionRow("s", "ann", 1.0, "t"), SessionRow("other", "ann", 1.0, "t")])
        await store.write([said(at, f"apple number {at}") for at in range(100)])
        assert row_count(tmp_path, "message_words_docsize") == 0
        assert len(await store.search("s", "apple", 1000)) == 100
        await store.write([said(100, "a new pear"), MessageRow("other", 0, "q", dump(Message("user", "a plum")))])
        assert [position for position, _ in await store.search("s", "pear", 10)] == [100]
        await store.write([said(101, "a late quince")])
        await store.delete_session("s")  # with a message that is not indexed
        assert await store.search("s", "apple pear quince", 10) == []
        assert [one.session.id for one in await store.find_sessions("ann", "plum", 10)] == ["other"]
        await store.write([MessageRow("other", 1, "q", dump(Message("user", "a late quince")))])
        assert [position for position, _ in await store.search("other", "quince", 10)] == [1]
    with closing(sqlite3.connect(tmp_path / "test.db")) as database:
        database.execute("INSERT INTO message_words (message_words) VALUES ('integrity-check')")
