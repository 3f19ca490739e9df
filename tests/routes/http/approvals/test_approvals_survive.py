"""A call that waits for a person outlives the server: `kill -9`, a stop, and a decision that came just before."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import aclosing, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.context.prompt import MOST_OVERRIDE
from app.models.scripted import Scripted
from app.runs.composition.unattended import UnattendedRuns
from app.storage.approvals import ApprovalDecided
from app.storage.principals import LOCAL_USER
from app.storage.tokens import TokenRow
from routes.protocol.requests import ChatRequest
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.server.approvals import decide, follow, note, stop_as_killed, wait_until, waiting_call
from tests.support.server.dragoman_process import server
from tests.support.server.serving import answer_in, events_of, serving, until
from tools.base.rights import Role

pytestmark = pytest.mark.anyio

TWO = "```write_file\nnote.txt\nfirst\n```\n```write_file\nother.txt\nsecond\n```"


async def test_a_killed_server_goes_on_with_what_waited(tmp_path: Path) -> None:
    two, done = (stream(says(text), chunk(finish="stop"), DONE) for text in (TWO, "Done."))
    async with asyncio.timeout(60), upstream(two, done, chats=True) as model:
        body = {"message": "Write.", "approval": "ask"}
        async with server(tmp_path, model.base_url) as (client, process):
            question: dict[str, Any] = {}
            with suppress(httpx2.TransportError):
                async with client.stream("POST", "/chat", json=body) as response:
                    run = response.headers["x-run-id"]
                    async with aclosing(events_of(response)) as events:
                        async for event in events:
                            if event["type"] == "approval.required":
                                question = event
                                process.kill()
            await process.wait()
        async with server(tmp_path, model.base_url) as (client, _):
            async with aclosing(follow(client, run, question["seq"])) as events:
                resumed = await anext(events)
                assert (resumed["type"], resumed["code"]) == ("notice", "resumed")
                await decide(client, run, question["call"], "approve")
                second = await until(events, "approval.required")
                assert second["arguments"]["path"] == "other.txt"
                await decide(client, run, second["call"], "deny")
                finished = await until(events, "run.finished")
        assert (finished["reason"], finished["rounds"], finished["calls"]) == ("answered", 2, 1)
        assert note(tmp_path).read_text() == "first" and not (tmp_path / "work" / "other.txt").exists()


@pytest.mark.parametrize(
    "policy", [{"max_rounds": 10**6}, {"approval": "sometimes"}, {"system": "x" * (MOST_OVERRIDE + 1)}]
)
async def test_a_run_whose_options_are_not_valid_any_more_ends_and_the_server_starts(
    tmp_path: Path, policy: dict[str, Any]
) -> None:
    async with asyncio.timeout(60):
        async with serving(tmp_path, Scripted([TWO])) as served:
            question, _ = await waiting_call(served)
            await stop_as_killed(served.services, run := question["run"])
        with closing(sqlite3.connect(tmp_path / "data" / "dragoman.db")) as connection, connection:
            connection.execute("UPDATE runs SET policy = ? WHERE id = ?", (json.dumps(policy), run))
        async with serving(tmp_path, Scripted(["Hello."])) as served:
            last = (await served.events(run))[-1]
            assert (last["type"], last["code"]) == ("run.failed", "interrupted")
            async with aclosing(served.turn(message="Go on.", session=question["session"])) as turn:
                assert (await until(turn, "run.finished"))["text"] == "Hello."


@pytest.mark.parametrize("tied", [False, True])  # True: of a lane, whose runs end with their server unless they wait
async def test_a_decision_that_came_just_before_the_kill_counts(tmp_path: Path, tied: bool) -> None:
    provider = Scripted([TWO, "Done."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        question, _ = await waiting_call(served)
        run, call = question["run"], question["call"]
        await stop_as_killed(served.services, run)
        assert await served.services.store.decide_approval(
            ApprovalDecided(run, call, "approved", time.time(), "local", "once")
        )
    if tied:
        with closing(sqlite3.connect(tmp_path / "data" / "dragoman.db")) as connection, connection:
            connection.execute("UPDATE runs SET policy = json_set(policy, '$.tied', json('true'))")
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        second = await until(follow(served.client, run, question["seq"] + 1), "approval.required")
        assert note(tmp_path).read_text() == "first" and second["arguments"]["path"] == "other.txt"
        await served.services.runs.cancel(run)
        kinds = [event["type"] for event in await served.events(run)]
    assert kinds.count("run.finished") == 1 and kinds.count("tool.started") == 1


async def test_a_decision_that_came_while_the_run_was_taken_up_counts(tmp_path: Path) -> None:
    provider = Scripted([TWO, "Done."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        question, _ = await waiting_call(served)
        run, call = question["run"], question["call"]
        await stop_as_killed(served.services, run)
        assert (await served.client.post("/pause")).is_success
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        assert served.services.runs.approvals.is_waiting(run), "it is taken up, and the pause holds it"
        decided = ApprovalDecided(run, call, "approved", time.time(), "local", "once")
        assert await served.services.store.decide_approval(decided), "as of a request before it was"
        assert (await served.client.post("/resume")).is_success
        second = await until(follow(served.client, run, question["seq"] + 1), "approval.required")
        assert note(tmp_path).read_text() == "first" and second["arguments"]["path"] == "other.txt"
        await served.services.runs.cancel(run)
        kinds = [event["type"] for event in await served.events(run)]
    assert kinds.count("approval.resolved") == 2 and kinds.count("tool.started") == 1


async def test_what_expired_while_the_server_was_away_is_not_run(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([TWO]), approval_time_limit_s="4") as served:
        question, path = await waiting_call(served)
        await stop_as_killed(served.services, question["run"])
    await asyncio.to_thread(wait_until, question["expires_at"])
    replies = Scripted(["Fine.", "Well."])
    async with asyncio.timeout(30), serving(tmp_path, replies, approval_time_limit_s="4") as served:
        events = await served.events(question["run"], question["seq"])
        assert [event["decision"] for event in events if event["type"] == "approval.resolved"] == ["expired"] * 2
        assert (events[-1]["type"], answer_in(events[-1]["text"])) == ("run.finished", "Fine.")
        assert (await served.client.post(path, json={"decision": "approve"})).status_code == 410
        assert (await served.chat("And?", session=question["session"]))[-1]["text"] == "Well."
    assert not note(tmp_path).exists()


async def test_a_call_whose_tool_had_begun_is_not_run_again(tmp_path: Path) -> None:
    slow = "```bash\ntouch began; sleep 1000\n```"
    async with asyncio.timeout(30), serving(tmp_path, Scripted([slow])) as served:
        question, path = await waiting_call(served)
        await served.client.post(path, json={"decision": "approve"})
        await until(follow(served.client, question["run"], question["seq"]), "tool.started")
        await stop_as_killed(served.services, question["run"])
    async with asyncio.timeout(30), serving(tmp_path, Scripted(["Fine."])) as served:
        events = await served.events(question["run"])
        assert [event["type"] for event in events].count("tool.started") == 1
        [finished] = [event for event in events if event["type"] == "tool.finished"]
        assert (answer_in(events[-1]["text"]), finished["ok"]) == ("Fine.", False)
        messages = await served.services.store.messages(question["session"])
    assert "outcome is unknown" in messages[-2].text and finished["text"] == messages[-2].text


async def test_a_run_of_somebody_who_has_gone_does_not_go_on(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([TWO])) as served:
        question, _ = await waiting_call(served)
        await stop_as_killed(served.services, question["run"])
        await served.services.store.write([TokenRow("0" * 64, "ann", "admin", 1.0)])  # no local user any more
    async with asyncio.timeout(30), serving(tmp_path, Scripted([])) as served:
        row = await served.services.store.run(question["run"])
    assert row and row.state == "interrupted"


async def test_a_queued_run_behind_one_that_waits_leaves_the_history_valid(tmp_path: Path) -> None:
    provider = Scripted([TWO, "Done.", "Third."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        question, _ = await waiting_call(served)
        session = question["session"]
        async with aclosing(served.turn(message="Later.", session=session, when_busy="queue")) as turn:
            await until(turn, "notice")
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        for _ in range(2):
            [row] = await served.services.store.approvals("local")
            await decide(served.client, question["run"], row.call, "approve")
            async with aclosing(follow(served.client, question["run"], 0)) as events:
                await until(events, "tool.finished")
            if row.call != question["call"]:
                break
            async with aclosing(follow(served.client, question["run"], question["seq"])) as events:
                await until(events, "approval.required")
        behind = (await served.services.store.runs(session))[1]
        assert (await served.events(behind.id))[-1]["text"] == "Third.", "its turn came after the one that waited"
        messages = await served.services.store.messages(session)
    called = [call.id for message in messages for call in message.calls]
    assert [message.call for message in messages if message.role == "tool"] == called
    assert [message.text for message in messages if message.role == "user"] == ["Write.", "Later."]


async def test_the_mode_of_a_run_holds_for_what_follows_of_its_job(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(["Hi."], repeat=True)) as served:
        events = await served.chat("Hello", approval="deny", tools=["read_file"])
        row = await served.services.store.run(events[0]["run"])
        assert row and json.loads(row.policy) == {"approval": "deny", "tools": ["read_file"]}
        agent, _ = await UnattendedRuns(served.services.factory).restored_agent(row)
        assert [tool.name for tool in agent.toolbox.offered] == ["read_file"]
        assert agent.scope.gate.policy.mode == "deny" and not agent.scope.gate.policy.planning
        planned = await served.services.store.run((await served.chat("Plan.", mode="plan"))[0]["run"])
        assert planned
        agent, _ = await UnattendedRuns(served.services.factory).restored_agent(planned)
        assert agent.scope.gate.policy.planning, "it only reads until a person has accepted a plan of its own"


async def test_each_has_files_of_their_own(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        ann = replace(LOCAL_USER, name="ann", role=Role.USER)
        places = [
            (await served.services.factory.agent(one, ChatRequest(message="x"))).scope.tool_context.workspace
            for one in (LOCAL_USER, ann, replace(ann, name="bob"), replace(ann, name="../ann"), replace(ann, name=""))
        ]
    assert len(set(places)) == 5 and places[0] == tmp_path / "work"
    assert all(place.parent == tmp_path / "work" / "people" for place in places[1:])


async def test_a_file_that_changed_while_the_server_was_away_is_asked_for_again(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with serving(tmp_path, Scripted([TWO])) as served:
            question, _ = await waiting_call(served)
        note(tmp_path).write_text("somebody else's work")
        async with serving(tmp_path, Scripted(["Done."])) as served:
            async with aclosing(follow(served.client, question["run"], question["seq"])) as events:
                await decide(served.client, question["run"], question["call"], "approve")
                again = await until(events, "approval.required")
            assert again["call"] == f"{question['call']}~2"
            assert note(tmp_path).read_text() == "somebody else's work"
        async with serving(tmp_path, Scripted(["Done."])) as served:  # the second question survives as the first did
            [listed] = (await served.client.get("/approvals")).json()["approvals"]
            assert listed["call"] == again["call"]
            async with aclosing(follow(served.client, question["run"], again["seq"])) as events:
                await decide(served.client, question["run"], again["call"], "approve")
                finished = await until(events, "tool.finished")
                assert finished["call"] == question["call"] and note(tmp_path).read_text() == "first"
                second = await until(events, "approval.required")
                await decide(served.client, question["run"], second["call"], "deny")
                await until(events, "run.finished")
