"""What goes wrong under a run: a store that refuses, words that cannot be written down, races for a session."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.core.events import TERMINAL
from app.core.messages import unanswered
from app.core.provider import Finished, Piece, ProviderFailed, TextChunk
from app.models.scripted import Line, Pause, Raise, Scripted
from app.storage.principals import LOCAL_USER as LOCAL
from app.storage.sqlite.store import SQLiteStore
from app.transcript.run_request import NotFound, RunRequest, SessionBusy, Stopping
from parsing import Call, CallOpened, Thought
from routes.protocol.requests import ChatRequest
from tests.support.databases.sqlite import full_disk
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

LOUD = "```bash\nhead -c 9000 /dev/urandom | base64 -w0\n```\n"


def ends(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events if event["type"] in TERMINAL]


async def test_a_full_disk_ends_the_run_once_and_the_session_goes_on(tmp_path: Path) -> None:
    provider = Scripted([LOUD], repeat=True)
    async with asyncio.timeout(60), serving(tmp_path, provider) as served:
        first = await served.chat(max_rounds=1)
        session = first[0]["session"]
        async with full_disk(served):
            events = await served.chat(session=session)
            assert ends(events) == ["run.failed"]
            assert (events[-1]["code"], events[-1]["retryable"]) == ("storage_failed", True)
            assert "Make room" in events[-1]["message"]
            run = events[0]["run"]
            await served.services.runs.cancel(run)  # its watchers had their end before its tool was gone
        assert await served.events(run) == events  # once there is room, what was seen can be read again
        assert (await served.client.get(f"/runs/{run}")).json()["state"] == "storage_failed"
        again = await served.chat(session=session, max_rounds=1)
        assert ends(again) == ["run.finished"]
    asked = provider.requests[-1].messages
    assert not list(unanswered(asked))
    calls = {call.id for message in asked for call in message.calls}
    assert {message.call for message in asked if message.role == "tool"} <= calls


async def test_a_locked_database_is_not_ready(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([])) as served:
        store = served.services.store
        assert isinstance(store, SQLiteStore)
        await store._writer.execute("PRAGMA busy_timeout = 0")
        other = sqlite3.connect(tmp_path / "data" / "dragoman.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        locked = await served.client.get("/readyz")
        other.close()
        again = await served.client.get("/readyz")
    assert (locked.status_code, again.status_code) == (503, 200)
    assert "Another process holds it" in locked.json()["reason"]


async def test_a_data_directory_that_is_deleted_takes_no_message_and_is_not_ready(tmp_path: Path) -> None:
    provider = Scripted(["Kept."], repeat=True)
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        session = (await served.chat())[0]["session"]
        shutil.rmtree(tmp_path / "data")
        ready = await served.client.get("/readyz")
        refused = await served.client.post("/chat", json={"message": "x", "session": session})
        read = await served.client.get(f"/sessions/{session}")
    assert (ready.status_code, refused.status_code, read.status_code) == (503, 503, 200)
    assert refused.json()["error"]["code"] == "storage_failed" and len(provider.requests) == 1
    for words in (ready.json()["reason"], refused.json()["error"]["message"]):
        assert "was deleted or replaced" in words and "restart the server" in words


async def test_what_a_model_said_before_it_failed_is_shown_to_the_last_character(tmp_path: Path) -> None:
    down = ProviderFailed("model_down", "It is gone. Start it.", retryable=True)
    async with asyncio.timeout(30), serving(tmp_path, Scripted([[TextChunk("1 <"), Raise(down)]])) as served:
        events = await served.chat()
    assert "".join(event["text"] for event in events if event["type"] == "text.delta") == "1 <"
    assert ends(events) == ["run.failed"]


async def test_more_events_at_once_than_are_kept_in_memory(tmp_path: Path) -> None:
    pieces: list[Line] = [piece for n in range(900) for piece in (TextChunk(f"w{n} "), Thought(f"t{n} "))]
    async with asyncio.timeout(30), serving(tmp_path, Scripted([pieces])) as served:
        events = await served.chat()
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert ends(events) == ["run.finished"]
    assert len(events) > 1800


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "told"), [(nested(300), "flatter"), (nested(5000), "flatter"), (float("nan"), "NaN")]
)
async def test_arguments_that_cannot_be_written_down_are_rejected(tmp_path: Path, value: object, told: str) -> None:
    arguments = {"command": "echo x", "other": value}
    asked: list[Piece] = [CallOpened(0, "bash"), Call(0, "bash", arguments, "native"), Finished("tool_calls")]
    async with asyncio.timeout(30), serving(tmp_path, Scripted([asked, "Sorry."])) as served:
        events = await served.chat()
        session = await served.client.get(f"/sessions/{events[0]['session']}")
    [rejected] = [event for event in events if event["type"] == "tool.rejected"]
    assert told in rejected["reason"]
    assert events[-1]["text"] == "Sorry."
    assert [message["role"] for message in session.json()["messages"]] == ["user", "assistant", "tool", "assistant"]


async def test_of_many_messages_at_once_a_session_takes_one(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    provider = Scripted(["Zero", ["One", Pause(go_on)]])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        session = (await served.chat())[0]["session"]
        agents = [await served.services.factory.agent(LOCAL, ChatRequest(message="x")) for _ in range(20)]
        starts = (served.services.runs.start(agent, LOCAL, RunRequest("x", session)) for agent in agents)
        told = await asyncio.gather(*starts, return_exceptions=True)
        [row] = [one for one in told if not isinstance(one, BaseException)]
        assert [one.run for one in told if isinstance(one, SessionBusy)] == [row.id] * 19
        go_on.set()
        assert ends(await served.events(row.id)) == ["run.finished"]
    assert len(provider.requests) == 2


async def test_a_deleted_session_takes_no_message_and_leaves_nothing(tmp_path: Path) -> None:
    provider = Scripted(["Zero", ["One", Pause(asyncio.Event())]])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        runs = served.services.runs
        session = (await served.chat())[0]["session"]
        async with aclosing(served.turn(message="x", session=session)) as turn:
            live = (await anext(turn))["run"]
            agent = await served.services.factory.agent(LOCAL, ChatRequest(message="x"))
            deleted = asyncio.create_task(runs.delete_session(session, LOCAL))
            await asyncio.sleep(0)  # the deletion is under way
            with pytest.raises(NotFound):
                await runs.start(agent, LOCAL, RunRequest("y", session))
            await deleted
        assert (await served.client.get(f"/runs/{live}")).status_code == 404
        store = served.services.store
        assert await store.messages(session) == []
        assert await store.events(live, 0, 10) == []
        assert await store.unfinished_runs() == []


async def test_a_stopping_server_starts_nothing_more(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(["Hi."])) as served:
        await served.services.runs.close()
        refused = await served.client.post("/chat", json={"message": "x"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stopping")
        agent = await served.services.factory.agent(LOCAL, ChatRequest(message="x"))
        with pytest.raises(Stopping):
            await served.services.runs.start(agent, LOCAL, RunRequest("x"))


async def test_a_run_that_was_being_started_when_the_server_stopped_is_left_to_the_next(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([[Pause(asyncio.Event())]])) as served:
        runs = served.services.runs
        agent = await served.services.factory.agent(LOCAL, ChatRequest(message="x"))
        starting = asyncio.create_task(runs.start(agent, LOCAL, RunRequest("x")))
        tied = asyncio.create_task(runs.start(agent, LOCAL, RunRequest("x", tied=True)))
        await asyncio.sleep(0)
        await runs.close()
        run = (await starting).id
        assert ends(await served.events(run)) == []
        [*_, end] = await served.events((await tied).id)
        assert end["reason"] == "server_stopped"
    async with asyncio.timeout(30), serving(tmp_path, Scripted(["Hi."])) as served:
        assert (await served.events(run))[-1]["reason"] == "answered"


async def test_a_cancelled_run_says_what_it_cost(tmp_path: Path) -> None:
    provider = Scripted([["Half an answer ", Pause(asyncio.Event())]])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        async with aclosing(served.turn(message="Hello")) as turn:
            run = (await anext(turn))["run"]
            async for event in turn:
                if event["type"] == "text.delta":
                    break
            await served.client.post(f"/runs/{run}/cancel")
        last = (await served.events(run))[-1]
    assert last["usage"]["prompt_tokens"] > 0
    assert last["usage"]["completion_tokens"] > 0
    assert last["usage"]["measured"] is False
