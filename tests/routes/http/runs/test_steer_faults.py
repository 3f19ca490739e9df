"""Accepted messages, ends of runs and keys while the store refuses, or is slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from app.models.scripted import Pause, Scripted
from app.replicas.peers import Alone
from app.runs.run_manager import RunManager
from app.storage.principals import LOCAL_USER as LOCAL
from app.storage.runs import RunRow
from app.storage.sqlite.store import SQLiteStore
from app.storage.store import Store
from app.transcript.run_request import IdempotencyKey, RunOver, RunRequest
from routes.protocol.requests import ChatRequest
from tests.support.databases.earlier import set_pragma
from tests.support.server.serving import Served, serving, until

pytestmark = pytest.mark.anyio


def sqlite(store: Store) -> SQLiteStore:
    assert isinstance(store, SQLiteStore)
    return store


@asynccontextmanager
async def read_only(served: Served) -> AsyncGenerator[None, None]:
    store = sqlite(served.services.store)
    await set_pragma(store, "query_only = 1")
    yield
    await set_pragma(store, "query_only = 0")


async def true(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 (what is waited for has no event)
        await asyncio.sleep(0)


async def start(served: Served, turn: RunRequest) -> RunRow:
    agent = await served.services.factory.agent(LOCAL, ChatRequest(message=turn.message))
    return await served.services.runs.start(agent, LOCAL, turn)


async def failed_run(served: Served, go_on: asyncio.Event) -> RunRow:
    """A run that the store refused to keep, and its end too."""
    row = await start(served, RunRequest("x"))
    await true(lambda: served.services.runs._live[row.id].log.last_seq > 2)
    async with read_only(served):
        go_on.set()
        await served.services.runs.ended(row.id)
    left = await served.services.store.run(row.id)
    assert left
    assert left.state == "running"
    return row


async def by_the_next_start(runs: RunManager, served: Served) -> None:
    await served.chat("y")


async def by_the_server_s_stop(runs: RunManager, served: Served) -> None:
    await runs.close()


@pytest.mark.parametrize("kept", [by_the_next_start, by_the_server_s_stop])
async def test_an_end_that_was_refused_is_kept_as_it_was_seen(tmp_path: Path, kept: Callable[..., object]) -> None:
    go_on = asyncio.Event()
    async with asyncio.timeout(30), serving(tmp_path, Scripted([["Half", Pause(go_on), "!"], "Fine."])) as served:
        run = (await failed_run(served, go_on)).id
        async with aclosing(served.services.runs.watch(run, 0)) as pages:
            seen = [row async for rows in pages for row in rows]
        waiting = kept(served.services.runs, served)
        assert asyncio.iscoroutine(waiting)
        await waiting
        store = served.services.store
        assert await store.events(run, 0, 100) == seen
        row = await store.run(run)
        assert row
        assert (row.state, seen[-1].type) == ("storage_failed", "run.failed")


async def test_nothing_of_a_deleted_session_is_kept_later(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with asyncio.timeout(30), serving(tmp_path, Scripted([["Half", Pause(go_on), "!"], "Fine."])) as served:
        row = await failed_run(served, go_on)
        await served.client.delete(f"/sessions/{row.session}")
        await served.chat("y")
        assert await served.services.store.events(row.id, 0, 100) == []


async def test_a_message_that_was_accepted_before_the_store_refused_reaches_the_session(tmp_path: Path) -> None:
    provider = Scripted([["Half", Pause(asyncio.Event())], "I see.", "Yes."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served, aclosing(served.turn(message="x")) as turn:
        started = await until(turn, "run.started")
        await until(turn, "text.delta")
        runs, run = served.services.runs, started["run"]
        await runs.steer(run, "Wait!")
        runs._live[run].log.fail("No room.")
        with pytest.raises(RunOver):  # what could not be kept is not accepted
            await runs.steer(run, "Stop!")
        await runs.ended(run)
        for message in ("Go on.", "And?"):
            await served.chat(message, session=started["session"])
    assert [message.text for message in provider.requests[2].messages if message.role == "user"] == [
        "x",
        "Wait!",
        "Go on.",
        "And?",
    ]


async def test_what_waited_when_the_server_stopped_is_in_the_history_at_the_next_start(tmp_path: Path) -> None:
    provider = Scripted([["Half", Pause(asyncio.Event())], " a day.", "Yes.", "Fine."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        first = await start(served, RunRequest("x"))
        await true(lambda: served.services.runs._live[first.id].log.last_seq > 2)
        second = await start(served, RunRequest("y", first.session, "queue"))
        await served.services.runs.steer(second.id, "and z")
        await served.services.runs.close()
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        assert (await served.events(first.id))[-1]["text"] == "Half a day."
        events = await served.events(second.id)
        await served.chat("Go on.", session=first.session)
        assert (await served.services.store.sizes())["inbox"] == 0
    assert [event["text"] for event in events if event["type"] == "message.added"] == ["and z"]
    said = [message.text for message in provider.requests[-1].messages[-6:]]
    assert said == ["x", "Half a day.", "y", "and z", "Yes.", "Go on."]


async def test_a_run_that_was_cancelled_before_its_first_event_keeps_what_it_was_asked(tmp_path: Path) -> None:
    provider = Scripted(["Fine."], repeat=True)
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        session = (await served.chat("w"))[0]["session"]  # where a run must look first
        row = await start(served, RunRequest("x", session))
        await served.services.runs.cancel(row.id)
        assert [event["type"] for event in await served.events(row.id)] == ["run.finished"]
        await served.chat("y", session=row.session)
    assert [message.text for message in provider.requests[-1].messages[-2:]] == ["x", "y"]


async def test_a_run_whose_predecessor_ended_while_it_was_stored_does_not_wait_for_itself(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with asyncio.timeout(30), serving(tmp_path, Scripted([["One", Pause(go_on)], "Two"])) as served:
        runs = served.services.runs
        first = await start(served, RunRequest("x"))
        live = runs._live[first.id]
        await true(lambda: live.log.last_seq > 2)
        store = sqlite(served.services.store)
        async with store._one_writer:
            await store._catch_up_now()  # as each that writes does: nobody who reads has to wait then
            go_on.set()
            await true(lambda: live.stopping == "ended" and not runs._journal._next.logs)
            starting = asyncio.create_task(start(served, RunRequest("y", first.session, "queue")))
            await true(lambda: runs._journal._next.logs)
        events = await served.events((await starting).id)
    assert [event["type"] for event in events].count("notice") == 0
    assert events[-1]["text"] == "Two"


async def test_a_request_with_a_key_waits_for_no_other_key(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(["Hi.", "Ho.", "Hu."])) as served:
        runs = served.services.runs
        session = (await served.chat())[0]["session"]
        peers = runs.peers
        assert isinstance(peers, Alone)
        async with peers.lock("session", session):  # as a deletion holds it, until the session's tools are gone
            held = asyncio.create_task(start(served, RunRequest("x", session, key=IdempotencyKey("a", "1"))))
            await true(lambda: peers._locks["session", session]._waiters)
            assert await start(served, RunRequest("x", key=IdempotencyKey("b", "1")))
        assert (await held).session == session


async def test_a_pause_holds_against_a_resume_that_is_still_being_stored(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([])) as served:
        switch, writing = served.services.switch, sqlite(served.services.store)._one_writer
        await switch.set(paused=True)
        async with writing:
            resumed = asyncio.create_task(switch.set(paused=False))
            await true(lambda: writing._waiters)
            paused = asyncio.create_task(switch.set(paused=True))
            await true(lambda: len(writing._waiters or ()) == 2)
        await resumed
        assert switch.paused
        await paused
        assert switch.paused
        await switch.load()
        assert switch.paused
