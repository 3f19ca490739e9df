"""Following a session without a server: what is told once, what is told again, and when it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from app.budget.budgets import Ledger
from app.core.notifier import Notifier
from app.log.event_writer import EventWriter
from app.policy.approvals import Approvals
from app.runs.run_manager import RunManager
from app.runs.session_stream import Asked, Followed, Following, Position
from app.storage.kill_switch import KillSwitch
from app.storage.runs import EventRow, InboxRow, RunEnded, RunRow
from app.storage.sessions import SessionRow
from app.storage.sqlite.store import SQLiteStore
from tests.support.replicas.servers import passed

pytestmark = pytest.mark.anyio

SESSION = "ses_1"
END = "run.finished"


@asynccontextmanager
async def followed(tmp_path: Path) -> AsyncGenerator[tuple[Following, SQLiteStore], None]:
    store = await SQLiteStore.open(tmp_path / "test.db")
    try:
        async with asyncio.timeout(30), EventWriter(store) as journal:
            runs = RunManager(store, journal, KillSwitch(store), Approvals(store, 300), Ledger(store))
            await store.write([SessionRow(SESSION, "ann", 1, "title")])
            yield Following(runs, store, runs.notifier), store
    finally:
        await store.close()


def run(name: str, created: float, *, ended: bool = True, events: int = 3) -> list[RunRow | EventRow | RunEnded]:
    """A run as the store has it."""
    types = ["text.delta"] * (events - 1) + [END if ended else "text.delta"]
    told = [EventRow(name, seq, kind, json.dumps({"type": kind})) for seq, kind in enumerate(types, start=1)]
    end = [RunEnded(name, "answered", created + 1)] if ended else []
    return [RunRow(name, SESSION, "ann", "m", "running", created), *told, *end]


def ids(told: Sequence[Followed]) -> list[str]:
    named = [[f"{one.row.id}:0"] if isinstance(one, Asked) else [f"{row.run}:{row.seq}" for row in one] for one in told]
    return [name for names in named for name in names]


async def until(news: AsyncGenerator[Followed, None], last: str) -> list[str]:
    told: list[str] = []
    while last not in told:
        told += ids([await anext(news)])
    return told


ALL_IDS = [f"{name}:{seq}" for name in ("a", "b", "c") for seq in range(4)]


@pytest.mark.parametrize("place", range(len(ALL_IDS) - 1))
async def test_behind_any_place_comes_exactly_the_rest(tmp_path: Path, place: int) -> None:
    async with followed(tmp_path) as (following, store):
        await store.write([*run("a", 1), *run("b", 2), *run("c", 2)])  # two of the same time
        name, _, seq = ALL_IDS[place].partition(":")
        async with aclosing(following.follow(SESSION, Position(name, int(seq)))) as news:
            assert await until(news, "c:3") == ALL_IDS[place + 1 :]


async def test_without_a_place_it_begins_behind_all_that_is_over(tmp_path: Path) -> None:
    async with followed(tmp_path) as (following, store):
        await store.write([*run("a", 1), *run("b", 2)])
        async with aclosing(following.follow(SESSION, None)) as news:
            first = asyncio.create_task(until(news, "c:3"))
            await asyncio.sleep(0)
            await store.last_runs(SESSION, None, 2)  # answered after the same question of the follower
            await store.write(run("c", 3))
            following.notifier.notify(SESSION)
            assert await first == ["c:0", "c:1", "c:2", "c:3"]


async def test_it_ends_when_the_session_is_gone_or_the_server_stops(tmp_path: Path) -> None:
    async with followed(tmp_path) as (following, store):
        await store.write(run("a", 1))
        for stop in ("close", "delete"):
            following = Following(following.runs, store, Notifier())
            async with aclosing(following.follow(SESSION, Position("a", 2))) as news:
                assert await until(news, "a:3") == ["a:3"]
                if stop == "delete":
                    await store.delete_session(SESSION)
                    following.notifier.notify(SESSION)
                else:
                    following.notifier.close()
                assert [one async for one in news] == []


async def test_what_it_was_asked_for_is_told_also_while_the_words_still_wait(tmp_path: Path) -> None:
    async with followed(tmp_path) as (following, store):
        await store.write([*run("a", 1, ended=False), InboxRow("a", 1, "hello", "[]")])
        async with aclosing(following.follow(SESSION, None)) as news:
            asked = await anext(news)
            assert isinstance(asked, Asked) and asked.message and asked.message.text == "hello"
            assert await until(news, "a:3") == ["a:1", "a:2", "a:3"]
            await store.write([EventRow("a", 4, END, json.dumps({"type": END})), RunEnded("a", "answered", 2)])
            following.notifier.notify(SESSION)
            assert await until(news, "a:4") == ["a:4"]


async def test_a_run_that_could_not_be_followed_for_a_while_is_followed_on_though_nothing_tells_of_it(
    tmp_path: Path,
) -> None:
    async with followed(tmp_path) as (following, store):
        await store.write(run("a", 1, ended=False))
        async with aclosing(following.follow(SESSION, Position("a", 2))) as news:
            assert await until(news, "a:3") == ["a:3"]
            rest = asyncio.create_task(until(news, "a:4"))
            await passed(0.2)  # it waits
            await store.write([EventRow("a", 4, END, json.dumps({"type": END})), RunEnded("a", "answered", 2)])
            assert await rest == ["a:4"]
