"""Attacks on helpers and sent messages: races, grants, shared limits, ends and deletions in the middle."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Pause, Scripted
from tests.support.models.replies import tool_call
from tests.support.server.delegating import LIMIT_S, ByTask, delegates, helpers_in, result_of
from tests.support.server.events import of_kind
from tests.support.server.serving import serving, until

pytestmark = pytest.mark.anyio
SOME = [tool_call("list_files", path="."), tool_call("list_files", pattern="*"), tool_call("list_files"), "Found."]


@pytest.mark.parametrize(("limit", "flag"), [("max_calls", "5"), ("max_tokens", "3600")])
async def test_calls_and_tokens_of_helpers_count_for_their_run(tmp_path: Path, limit: str, flag: str) -> None:
    """A thousand rounds by helpers would be possible otherwise: their limits are not their own."""
    replies = {f"Task {number}": [*SOME] for number in range(20)}
    asks = [delegates(f"Task {number}") for number in range(20)]
    async with (
        asyncio.timeout(LIMIT_S),
        helpers_in(tmp_path, {"Ask": [*asks, "Done."], **replies}, max_helpers="200") as served,
    ):
        more: dict[str, Any] = {limit: int(flag)}
        events = await served.chat("Ask", **more)
        assert events[-1]["type"] == "run.finished", events[-1]
        taken = [(one["calls"], sum(one["usage"].values())) for one in of_kind(events, "helper.finished")]
        assert 1 <= len(taken) <= 3, taken
        if limit == "max_calls":
            assert sum(calls for calls, _ in taken) + events[-1]["calls"] <= int(flag)


async def test_two_messages_at_once_do_not_share_the_last_room(tmp_path: Path) -> None:
    hold = asyncio.Event()
    replies: dict[str, Any] = {"First": ["I am the first.", [Pause(hold)], [Pause(hold)]]}
    flags: dict[str, Any] = {"session_tools": True, "max_follow_ups": "1"}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model := ByTask(replies), **flags) as served:
        first = (await served.chat("First"))[0]["session"]
        for name in ("Second", "Third"):
            model.add(name, tool_call("send_to_session", session=first, message="Tell me more."), "Done.")
        both = await asyncio.gather(served.chat("Second"), served.chat("Third"))
        assert sorted(result_of(events, "send_to_session")["ok"] for events in both) == [False, True]
        hold.set()


async def test_grants_of_a_session_do_not_count_for_what_is_sent_there(tmp_path: Path) -> None:
    write = tool_call("write_file", path="a.txt", content="x")
    replies: dict[str, Any] = {"First": [write, "Written.", write, "Written again."]}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model := ByTask(replies), session_tools=True) as served:
        async with aclosing(served.turn(message="First", approval="ask")) as turn:
            asked = await until(turn, "approval.required")
            run = (await served.client.get("/approvals")).json()["approvals"][0]["run"]
            decision = {"decision": "approve", "scope": "session"}
            await served.client.post(f"/runs/{run}/approvals/{asked['call']}", json=decision)
            await until(turn, "run.finished")
        first = (await served.client.get("/sessions")).json()["sessions"][0]["id"]
        assert (await served.client.get(f"/sessions/{first}/grants")).json()["grants"]
        model.add("Second", tool_call("send_to_session", session=first, message="Write it."), "Sent.")
        await served.chat("Second", approval="auto")
        while not (waiting := (await served.client.get("/approvals")).json()["approvals"]):
            assert await served.services.runs.under_way(first), "it has written without asking"
            await asyncio.sleep(0)
        assert [one["name"] for one in waiting] == ["write_file"] and waiting[0]["session"] == first


async def test_deleting_a_conversation_ends_and_deletes_its_helpers(tmp_path: Path) -> None:
    replies: dict[str, Any] = {"Ask": [delegates("One")], "One": [[Pause(asyncio.Event())]]}
    async with asyncio.timeout(LIMIT_S), helpers_in(tmp_path, replies) as served:
        async with aclosing(served.turn(message="Ask")) as turn:
            started = await until(turn, "helper.started")
            [session] = (await served.client.get("/sessions")).json()["sessions"]
            assert (await served.client.delete(f"/sessions/{session['id']}")).is_success
            assert not await served.services.runs.is_active(started["helper"])
            assert (await served.client.get(f"/sessions/{started['helper_session']}")).status_code == 404


async def test_deleting_a_response_deletes_its_helpers(tmp_path: Path) -> None:
    replies: dict[str, Any] = {"Ask": [delegates("One"), "Done."], "One": ["One done."]}
    async with asyncio.timeout(LIMIT_S), helpers_in(tmp_path, replies) as served:
        body = {"model": "dragoman/agent", "input": "Ask", "store": True}
        response = (await served.client.post("/v1/responses", json=body)).json()
        [session] = (await served.client.get("/sessions")).json()["sessions"]
        [below] = (await served.client.get(f"/sessions/{session['id']}")).json()["helpers"]
        assert (await served.client.delete(f"/v1/responses/{response['id']}")).is_success
        for one in (session["id"], below["session"]):
            assert (await served.client.get(f"/sessions/{one}")).status_code == 404


async def test_a_server_that_stops_leaves_helpers_to_the_next_in_time(tmp_path: Path) -> None:
    replies: dict[str, Any] = {"Ask": [delegates("One")], "One": [[Pause(asyncio.Event())]]}
    async with asyncio.timeout(LIMIT_S):
        async with helpers_in(tmp_path, replies) as served:
            async with aclosing(served.turn(message="Ask")) as turn:
                run = (await until(turn, "run.started"))["run"]
                started = await until(turn, "helper.started")
        async with helpers_in(tmp_path, {"Ask": ["Done."], "One": ["Found."]}) as served:
            events, below = await served.events(run), await served.events(started["helper"])
    assert (below[-1]["text"], events[-1]["reason"]) == ("Found.", "answered")
    assert len(of_kind(events, "helper.started")) == len(of_kind(events, "helper.finished")) == 1
    assert "Found." in result_of(events)["text"]


async def test_a_helper_that_is_not_taken_up_ends_with_the_run_above(tmp_path: Path) -> None:
    replies: dict[str, Any] = {"Ask": [delegates("One")], "One": [[Pause(asyncio.Event())]]}
    async with asyncio.timeout(LIMIT_S):
        async with helpers_in(tmp_path, replies) as served:
            async with aclosing(served.turn(message="Ask")) as turn:
                run = (await until(turn, "run.started"))["run"]
                started = await until(turn, "helper.started")
        async with serving(tmp_path, Scripted(["Done."])) as served:  # helpers are switched off
            events = await served.events(run)
            while not (below := (await served.client.get(f"/runs/{started['helper']}")).json())["ended"]:
                pass
    assert "unknown" in result_of(events)["text"] and events[-1]["text"].endswith("Done.")
    assert below["state"] == "interrupted"


async def test_profiles_of_a_run_hold_for_its_helpers(tmp_path: Path) -> None:
    replies = {
        "Ask": [delegates("Help"), "Done."],
        "Help": [tool_call("bash", command="echo hi > a.txt"), "Could not."],
    }
    async with asyncio.timeout(LIMIT_S), helpers_in(tmp_path, replies) as served:
        made = await served.client.put(
            "/profiles/narrow", json={"tools": ["delegate", "list_files"], "approval": "deny"}
        )
        assert made.is_success, made.text
        events = await served.chat("Ask", profile="narrow", approval="auto")
        (started,) = of_kind(events, "helper.started")
        assert started["tools"] == ["list_files"]
        assert of_kind(await served.events(started["helper"]), "tool.rejected")
    assert not (tmp_path / "work" / "a.txt").exists()
