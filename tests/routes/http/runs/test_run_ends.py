"""What ends a run from outside: the kill switch, the limits of time, a client that leaves and wants that."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import aclosing
from pathlib import Path

import pytest

from app.models.capabilities.abilities import AbilityOverrides
from app.models.http.client import model_client
from app.models.scripted import Pause, Scripted
from app.models.wire.openai.provider import OpenAIChat
from app.storage.state import StateRow
from app.storage.tokens import TokenRow
from routes.access.token_text import fingerprint
from tests.support.models.chatting import WHOLE, says
from tests.support.models.upstream import Upstream, hang, left, stream, upstream
from tests.support.server.serving import serving, until

pytestmark = pytest.mark.anyio

SLEEP = "```bash\necho up; sleep 60\n```\n"


def chat_of(server: Upstream) -> OpenAIChat:
    return OpenAIChat(model_client(server.base_url), server.base_url, "m", overrides=AbilityOverrides("fenced"))


async def test_a_paused_server_asks_no_model_and_starts_no_tool(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    provider = Scripted([["```bash\ntouch ran\n```\n", Pause(go_on)], "Never.", "Here again."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        async with aclosing(served.turn(message="x")) as turn:
            started = await until(turn, "run.started")
            while not provider.requests:  # noqa: ASYNC110 (what is waited for has no event)
                await asyncio.sleep(0)
            assert (await served.client.post("/pause")).json() == {"paused": True}
            go_on.set()
            rest = [event async for event in turn]
        assert "tool.started" not in [event["type"] for event in rest]
        assert (rest[-1]["type"], rest[-1]["reason"]) == ("run.finished", "paused")
        assert not (tmp_path / "work" / "ran").exists()
        refused = await served.client.post("/chat", json={"message": "y"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "paused")
        ready = await served.client.get("/readyz")
        assert (ready.status_code, ready.json()["paused"]) == (200, True)  # a balancer must not take the page away
        assert len(provider.requests) == 1
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:  # it is kept across a restart
        assert (await served.client.post("/chat", json={"message": "y"})).status_code == 503
        assert (await served.client.post("/resume")).json() == {"paused": False}
        assert (await served.chat("y", session=started["session"]))[-1]["text"] == "Never."
    asked = provider.requests[1].messages
    assert "was not run" in asked[-2].text


async def test_pausing_between_rounds_stops_before_the_model(tmp_path: Path) -> None:
    provider = Scripted(["```bash\nuntil [ -e go ]; do sleep 0.01; done\n```\n", "Never."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served, aclosing(served.turn(message="x")) as turn:
        await until(turn, "tool.started")
        await served.client.post("/pause", json={})
        (tmp_path / "work" / "go").touch()
        assert (await until(turn, "run.finished"))["reason"] == "paused"
    assert len(provider.requests) == 1


async def test_pausing_can_cancel_what_runs(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([SLEEP])) as served:
        async with aclosing(served.turn(message="x")) as turn:
            await until(turn, "tool.progress")
            async with asyncio.timeout(30):
                await served.client.post("/pause", json={"cancel": True})
                assert (await until(turn, "run.finished"))["reason"] == "paused"


@pytest.mark.parametrize("written", ["maybe", "", "YES"])
async def test_a_state_that_makes_no_sense_counts_as_paused(tmp_path: Path, written: str) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        await served.services.store.write([StateRow("paused", written)])
    async with serving(tmp_path, Scripted([])) as served:
        assert (await served.client.post("/chat", json={"message": "x"})).status_code == 503


async def test_a_state_that_cannot_be_read_counts_as_paused(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        assert not served.services.switch.paused
    with sqlite3.connect(tmp_path / "data" / "dragoman.db") as db:
        db.execute("ALTER TABLE state RENAME COLUMN value TO gone")
    db.close()
    async with serving(tmp_path, Scripted([])) as served:
        assert (await served.client.post("/chat", json={"message": "x"})).status_code == 503


async def test_only_admins_pause(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        await served.services.store.write([TokenRow(fingerprint("t"), "bob", "user", 1.0)])
        headers = {"authorization": "Bearer t"}
        for path in ("/pause", "/resume"):
            assert (await served.client.post(path, headers=headers)).status_code == 403


async def test_the_whole_run_s_time_limit_names_itself(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([SLEEP])) as served:
        events = await served.chat(time_limit_s=0.5)
    assert [event["type"] for event in events].count("run.finished") == 1
    assert (events[-1]["type"], events[-1]["reason"]) == ("run.finished", "deadline")


async def test_a_silent_model_fails_the_run_by_its_own_limit(tmp_path: Path) -> None:
    async with upstream(*[stream(says("Hm"), then=hang)] * 3, chats=True) as server:
        async with asyncio.timeout(30), serving(tmp_path, chat_of(server)) as served:
            events = await served.chat(inactivity_s=0.2)
    assert (events[-1]["type"], events[-1]["code"]) == ("run.failed", "model_silent")
    assert "0.2" in events[-1]["message"]


async def test_cancel_closes_the_request_to_the_model_server(tmp_path: Path) -> None:
    gone = asyncio.Event()
    async with upstream(stream(says("Half"), then=left(gone)), chats=True) as server:
        async with asyncio.timeout(30), serving(tmp_path, chat_of(server)) as served:
            async with aclosing(served.turn(message="x")) as turn:
                run = (await until(turn, "run.started"))["run"]
                await until(turn, "text.delta")
                async with asyncio.timeout(30):
                    await served.client.post(f"/runs/{run}/cancel")
                    await gone.wait()


async def test_a_client_that_wants_it_stops_its_run_by_leaving(tmp_path: Path) -> None:
    gone = asyncio.Event()
    async with upstream(stream(says("Half"), then=left(gone)), WHOLE, chats=True) as server:
        async with asyncio.timeout(30), serving(tmp_path, chat_of(server)) as served:
            async with aclosing(served.turn(message="x", on_disconnect="cancel")) as turn:
                run = (await until(turn, "run.started"))["run"]
                await until(turn, "text.delta")
            async with asyncio.timeout(30):
                await gone.wait()
            assert (await served.events(run))[-1]["reason"] == "cancelled"
