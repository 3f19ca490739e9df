"""Writes that are cancelled or refused: the store has exactly what it has taken, and takes what comes next."""

from __future__ import annotations

import asyncio
import random
import resource
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.core.events import RunFailed, TextDelta, encode
from app.core.messages import Message, dump
from app.log.terminal_retry import TerminalRetry
from app.policy.approvals import Approvals
from app.storage.changes import Change, StoreFailed
from app.storage.runs import ALL, EventRow, RunEnded, RunRow
from app.storage.sessions import MessageRow, SessionRow
from app.storage.sqlite import store as sqlite_store
from app.storage.sqlite.store import SQLiteStore
from tests.support.databases.sqlite import quiet_store, text_row

pytestmark = pytest.mark.anyio


async def test_a_cancelled_transaction_leaves_no_statement_behind(tmp_path: Path) -> None:
    """Its statement still waits for the thread when the caller is cancelled."""
    async with quiet_store(tmp_path) as store:
        await store.write([SessionRow("s", "ann", 1.0, "t")])
        free = threading.Event()
        held = asyncio.ensure_future(store._writer._execute(free.wait, 30))  # type: ignore[no-untyped-call]
        await asyncio.sleep(0)
        joining = asyncio.create_task(store.replace_events("r", []))
        await asyncio.sleep(0)
        joining.cancel()
        await asyncio.sleep(0)
        free.set()
        await held
        with suppress(asyncio.CancelledError):
            await joining
        await store._writer.execute("SELECT 1")  # the thread has done all
        assert not store._writer.in_transaction


@dataclass
class Noted:
    """A store that notes that a write has begun."""

    store: SQLiteStore
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def write(self, changes: Sequence[Change]) -> None:
        self.begun.set()
        await self.store.write(changes)


async def test_the_end_of_a_run_is_kept_once_though_its_first_caller_is_cancelled(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        await store.write([RunRow("r", "s", "ann", "m", "running", 1.0), text_row("r", 1)])
        end = EventRow("r", 2, RunFailed.type, encode(RunFailed("storage_failed", "", retryable=True)))
        noted = Noted(store)
        lost = TerminalRetry(noted, Approvals(store))
        lost.add("r", end)
        async with store._one_writer:
            await store._catch_up_now()
            keeping = asyncio.create_task(lost.keep("r"))
            await noted.begun.wait()
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
        await lost.keep("r")
        assert lost.events("r", 0) == []
        assert await store.events("r", 0, ALL) == [text_row("r", 1), end]


async def test_a_number_that_no_column_holds_is_a_failure_of_the_store(tmp_path: Path) -> None:
    """Any other exception would end the task that writes for all runs."""
    async with quiet_store(tmp_path) as store:
        with pytest.raises(StoreFailed):
            await store.write([RunEnded("r", "answered", 1 << 64)])


def fill(store: SQLiteStore, *, full: bool) -> None:
    assert store._loop_connection
    store._loop_connection._connection.execute(f"PRAGMA max_page_count = {1 if full else 1 << 30}").fetchall()


@pytest.mark.parametrize("seed", range(3))
async def test_a_disk_that_is_full_now_and_then_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(sqlite_store, "COMMITS", 7)
    choose = random.Random(seed)
    taken: dict[str, list[EventRow]] = {f"r{number}": [] for number in range(4)}
    async with quiet_store(tmp_path) as store:
        for _ in range(100):
            fill(store, full=choose.random() < 0.3)
            run, rows = choose.choice(list(taken.items()))
            size, behind = choose.choice([1, 30, 9_000, 40_000]), len(rows) + 1
            text = encode(TextDelta("x" * size))
            new = [EventRow(run, behind + place, TextDelta.type, text) for place in range(choose.choice([1, 2, 40]))]
            with suppress(StoreFailed):
                await store.write(new)
                rows += new
            assert await store.events(run, 0, ALL) == rows
            assert await store.last_seq(run) == len(rows)
        async with quiet_store(tmp_path) as again:
            assert {run: await again.events(run, 0, ALL) for run in taken} == taken


@asynccontextmanager
async def full_disk(folder: Path) -> AsyncIterator[None]:
    """No file grows, as on a full disk. Each write to the log of the database is one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "test.db-wal").stat().st_size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_on_a_full_disk_all_that_was_accepted_can_be_read(tmp_path: Path) -> None:
    sessions = [SessionRow(f"s{number}", "ann", 1.0, "t") for number in range(20)]
    message = MessageRow("s1", 0, "r1", dump(Message("user", "Hi there")))
    async with quiet_store(tmp_path) as store:
        for session in sessions:
            await store.write([session, RunRow(f"r{session.id[1:]}", session.id, "ann", "m", "queued", 2.0)])
        await store.write([message])
        async with full_disk(tmp_path):
            with pytest.raises(StoreFailed):
                await store.write([SessionRow("new", "ann", 1.0, "t")])
            assert len(await store.sessions("ann", 100)) == len(sessions)
            assert await store.session("s1") == replace(sessions[1], updated=2.0)
            assert (await store.owner_of("s1"), await store.owner_of("new")) == ("ann", None)
            assert [run.id for run in await store.unfinished_runs()] == [f"r{number}" for number in range(20)]
            assert (await store.run("r3"), await store.run("r20")) == ((await store.runs("s3"))[0], None)
            assert [one.text for one in await store.messages("s1")] == ["Hi there"]
            with pytest.raises(StoreFailed):  # a search writes an index first
                await store.search("s1", "there", 10)
        assert [position for position, _ in await store.search("s1", "there", 10)] == [0]
        await store.write([SessionRow("new", "ann", 1.0, "t")])
        assert len(await store.sessions("ann", 100)) == len(sessions) + 1
