"""Changes that wait to be applied to their tables: read like all others, found again after a kill, applied once."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.core.messages import Message, dump
from app.storage.audit import AuditRow
from app.storage.changes import Change, StoreFailed
from app.storage.runs import InboxRow, InboxTaken, KeyRow, RunBegan, RunEnded, RunRow
from app.storage.sessions import MessageRow, SessionRow, SessionTitle
from app.storage.sql.writes import WRITES
from app.storage.sqlite.commit_queue import MOST_ENDED
from app.storage.sqlite.pending_changes import KINDS, MOST_CHANGES, PendingChanges, encoded
from app.storage.sqlite.schema import SCHEMA, TABLES
from app.storage.usage import ModelUsage, UsageAdded
from tests.support.databases.sqlite import FINISHED, quiet_store, row_count, text_row

pytestmark = pytest.mark.anyio
SESSION = SessionRow("s", "ann", 1.0, "Grüße")
RUN = RunRow("r", "s", "ann", "m", "queued", 1.5)
MESSAGE = MessageRow("s", 0, "r", dump(Message("user", "你好")))
USED = UsageAdded("ann", "tokens", "2026-11", 2.5)
SPENT = ModelUsage("ann", "2026-11", "m", "r", "s", 1, 2, 3, 0, 0, None, None)
EACH: list[Change] = [
    *(
        SESSION,
        RUN,
        RunBegan("r"),
        RunEnded("r", "answered", 2.0),
        InboxRow("r", 0, "x\ty\n"),
        InboxTaken("r"),
        MESSAGE,
    ),
    *(KeyRow("ann", "k", "body", "r", 1.0), AuditRow(1.0, "ann", "bash", "ask", "why", "policy"), USED, SPENT),
]

# What a database of this version may hold: later ones have to read it as well.
WRITTEN = """
[["session","s","ann",1.0,"Grüße","[]",0.0],["run","r","s","ann","m","queued",1.5,null,"{}"],["run began","r"],
["run ended","r","answered",2.0],["inbox","r",0,"x\\ty\\n","[]"],["inbox taken","r"],
["message","s",0,"r","{\\"role\\":\\"user\\",\\"text\\":\\"Hello\\"}"],["key","ann","k","body","r",1.0],
["audit",1.0,"ann","bash","ask","why","policy",null,null,null],["used","ann","tokens","2026-11",2.5],
["spent","ann","2026-11","m","r","s",1,2,3,0,0,null,null]]
"""


def test_what_this_version_has_written_is_read() -> None:
    read = PendingChanges()
    read.load([WRITTEN])
    assert read._changes == [
        replace(change, message='{"role":"user","text":"Hello"}') if isinstance(change, MessageRow) else change
        for change in EACH
    ]


def test_each_kind_is_read_back_as_it_was() -> None:
    assert {type(change) for change in EACH} == set(KINDS.values())
    text = encoded(EACH)
    assert text
    read, applied = PendingChanges(), PendingChanges()
    read.load(["[]", text])
    assert read._changes == EACH
    applied.load([text, "applied"])
    assert len(applied) == 0


async def test_what_waits_is_in_one_row_until_it_is_read(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        await store.write([SESSION, RUN])
        await store.write([MESSAGE, text_row("r", 1)])
        assert (row_count(tmp_path, "event_batches"), row_count(tmp_path, "runs"), row_count(tmp_path, "messages")) == (
            2,
            0,
            0,
        )
        assert await store.run("r") == RUN
        assert (row_count(tmp_path, "runs"), row_count(tmp_path, "messages")) == (1, 1)
        assert [message.text for message in await store.messages("s")] == ["你好"]


async def test_a_kill_loses_no_change_and_applies_none_twice(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as killed:
        await killed.write([SESSION, RUN, USED, SPENT, InboxRow("r", 0, "first")])
        await killed.write([RunBegan("r"), USED, SPENT])
        async with quiet_store(tmp_path) as store:
            assert await store.usage("ann", "tokens", "2026-11") == 5.0
            assert [row.requests for row in await store.spent_by_runs("s")] == [2]
            assert [row.text for row in await store.inbox("r")] == ["first"]
            await store.write([InboxTaken("r"), USED])
            async with quiet_store(tmp_path) as third:
                assert await third.usage("ann", "tokens", "2026-11") == 7.5
                assert [row.state for row in await third.unfinished_runs()] == ["running"]
                assert await third.inbox("r") == []
                store._pending.clear()  # so that a dead server does nothing when the test ends
        killed._pending.clear()


async def test_the_owner_of_a_session_is_known_at_once(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        assert await store.owner_of("s") is None
        await store.write([SESSION])
        assert await store.owner_of("s") == "ann"
        await store.write([RUN])
        assert await store.owner_of("s") == "ann"
        assert row_count(tmp_path, "runs") == 0, "a request in a session would apply its changes twice"
        await store.delete_session("s")
        assert await store.owner_of("s") is None


async def test_a_visitor_reads_what_waits_and_leaves_it_to_the_server(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        await store.write([SESSION, RUN, USED, MESSAGE])
        await store.write([text_row("r", 1)])
        async with quiet_store(tmp_path, visitor=True) as visitor:
            for _ in range(2):
                assert await visitor.usage("ann", "tokens", "2026-11") == 2.5
            assert (await visitor.run("r"), await visitor.session("s")) == (RUN, replace(SESSION, updated=1.5))
            assert await visitor.events("r", 0, 10) == [text_row("r", 1)]
            await store.write([USED, text_row("r", 2)])
            assert await visitor.usage("ann", "tokens", "2026-11") == 5.0
            await visitor.write([AuditRow(1.0, "ann", "token", "revoked", "", "ann")])
            assert (await visitor.sizes())["messages"] == 1
            assert [message.text for _, message in await visitor.search("s", "你好", 10)] == ["你好"]  # a part
            assert await visitor.search("s", "word", 10) == []
            assert (row_count(tmp_path, "runs"), row_count(tmp_path, "audit")) == (0, 1)
        await store.write([USED, text_row("r", 3)])
        assert await store.usage("ann", "tokens", "2026-11") == 7.5
        assert len(await store.events("r", 0, 10)) == 3
        async with quiet_store(tmp_path, visitor=True) as visitor:
            assert await visitor.usage("ann", "tokens", "2026-11") == 7.5
            assert len(await visitor.events("r", 0, 10)) == 3


@pytest.mark.parametrize(
    "change",
    [
        SessionRow("s", "ann", 1.0, "\ud800"),
        SessionRow("s", "ann", float("nan"), "t"),
        ModelUsage("ann", "2026-11", "m", "r", "s", 1, 1 << 63, 3, 0, 0, None, None),
    ],
)
async def test_what_no_column_holds_is_refused_at_once(tmp_path: Path, change: Change) -> None:
    async with quiet_store(tmp_path) as store:
        with pytest.raises(StoreFailed):
            await store.write([change])
        assert await store.sessions("ann", 10) == []


async def test_a_change_of_another_kind_finds_those_before_it_in_their_tables(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        await store.write([SESSION])
        await store.write([SessionTitle("s", "new")])
        assert [row.title for row in await store.sessions("ann", 10)] == ["new"]


async def test_a_caller_that_leaves_meanwhile_has_nothing_applied_twice(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        await store.write([USED, RUN])
        with closing(sqlite3.connect(tmp_path / "test.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # so that the thread has to apply them
            checking = asyncio.create_task(store.check())
            await asyncio.sleep(0)
            for _ in range(3):  # as a task group does
                checking.cancel()
                await asyncio.sleep(0)
            other.execute("COMMIT")
        with pytest.raises(asyncio.CancelledError):
            await checking
        await store._writer.execute("SELECT 1")  # the thread has done all
        await store.write([USED])
        assert await store.usage("ann", "tokens", "2026-11") == 5.0
        assert await store.run("r") == RUN


async def test_what_a_caller_has_begun_to_write_is_written_before_the_end(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        checking = asyncio.create_task(store.check())  # so that the write has to wait
        await asyncio.sleep(0)
        writing = asyncio.create_task(store.write([USED]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writing.cancel()
    await checking
    async with quiet_store(tmp_path) as store:
        assert await store.usage("ann", "tokens", "2026-11") == 2.5


async def test_a_run_that_begins_after_another_is_the_last_activity(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        await store.write([SESSION, RUN])
        assert await store.run("r")
        await store.write([RunEnded("r", "answered", 2.0)])
        await store.write([RunRow("r2", "s", "ann", "m", "queued", 3.0), RunRow("r3", "s", "ann", "m", "queued", 4.0)])
        await store.write([RunEnded("r2", "answered", 5.0)])
        assert [row.updated for row in await store.sessions("ann", 10)] == [5.0]


async def test_a_change_that_the_database_refuses_does_not_stand_in_the_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with quiet_store(tmp_path) as store:
        await store.write([SESSION, MESSAGE])
        await store.write([SESSION, RUN])
        assert await store.run("r") == RUN
        assert len(await store.messages("s")) == 1
        assert "is lost" in caplog.text and "UNIQUE" in caplog.text
        caplog.clear()
        await store.write([USED])
        assert await store.usage("ann", "tokens", "2026-11") == 2.5
        assert not caplog.text


async def test_no_more_waits_than_a_millisecond_of_work(tmp_path: Path) -> None:
    async with quiet_store(tmp_path) as store:
        for number in range(3 * MOST_CHANGES):
            await store.write([SessionRow(f"s{number}", "ann", 1.0, "t")])
            assert len(store._pending) <= MOST_CHANGES
        assert row_count(tmp_path, "sessions") >= 2 * MOST_CHANGES
        await store.write([SessionRow("long", "ann", 1.0, "t" * 20_000)])
        assert len(store._pending) == 0
        for number in range(3 * MOST_ENDED):
            await store.write([text_row(f"r{number}", 1)])
            await store.write([type(text_row("r", 1))(f"r{number}", 2, "run.finished", FINISHED)])
            assert len(store._recent.ended) <= MOST_ENDED
            assert len(await store.events(f"r{number}", 0, 10)) == 2
        assert row_count(tmp_path, "events") >= 2 * MOST_ENDED


def applied(groups: Sequence[Sequence[Change]]) -> dict[str, list[Any]]:
    """The tables after each group was applied, in one transaction or change by change."""
    with closing(sqlite3.connect(":memory:")) as database:
        for script in SCHEMA:
            database.executescript(script)
        for group in groups:
            for change in group:
                database.execute(WRITES[type(change)].sql, WRITES[type(change)].values(change))
        return {table: sorted(database.execute(f"SELECT * FROM {table}"), key=json.dumps) for table in TABLES}


def merged(changes: Sequence[Change]) -> list[Change]:
    pending = PendingChanges()
    pending.add(changes, "")
    return pending.merged()


CHANGES = st.lists(
    st.one_of(
        st.builds(RunBegan, st.sampled_from("abc")),
        st.builds(RunEnded, st.sampled_from("abc"), st.just("answered"), st.just(1.0)),
        st.builds(InboxRow, st.sampled_from("abc"), st.just(0), st.just("text")),
        st.builds(InboxTaken, st.sampled_from("abc")),
        st.builds(UsageAdded, st.sampled_from("ab"), st.just("tokens"), st.just("2026-11"), st.integers(0, 9)),
        st.builds(
            RunRow, st.sampled_from("abc"), st.just("s"), st.just("ann"), st.just("m"), st.just("queued"), st.just(1.0)
        ),
    ),
    max_size=20,
)


@given(CHANGES, st.integers(0, 20))
def test_merged_changes_have_the_same_effect(changes: list[Change], cut: int) -> None:
    """Of runs that are inserted once and before anything is changed about them, as it is with real ones."""
    begun, posted, one_by_one = set[str](), 0, list[Change]([SESSION])
    for at, change in enumerate(changes):
        match change:
            case RunRow(id) if id not in begun:
                begun.add(id)
                one_by_one.append(replace(change, created=float(at)))
            case RunEnded(run) if run in begun:
                one_by_one.append(replace(change, ended=float(at)))
            case InboxRow(run) if run in begun:
                posted += 1
                one_by_one.append(InboxRow(run, posted, change.text))
            case InboxTaken(run) | RunBegan(run) if run in begun:
                one_by_one.append(change)
            case UsageAdded():
                one_by_one.append(change)
    parts = [merged(one_by_one[: cut + 1]), merged(one_by_one[cut + 1 :])]
    assert applied(parts) == applied([one_by_one])
