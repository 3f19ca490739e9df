"""Runs outlive their watchers: resume, disconnect, cancel, restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from app.core.events import AgentEvent, RunStarted
from app.core.messages import AskedCall, Message, dump
from app.core.provider import Finished, TextChunk
from app.models.scripted import Line, Pause, Scripted
from app.runs.agent import Agent
from app.runs.recovery.left_off import LeftOff
from app.runs.run_context import EventSink
from app.storage.principals import LOCAL_USER as LOCAL
from app.storage.runs import EventRow, RunRow
from app.storage.sessions import MessageRow, SessionRow
from app.transcript.conversation import Conversation
from app.transcript.inbox import Inbox
from app.transcript.run_request import RunRequest
from routes.protocol.requests import ChatRequest
from tests.support.sandbox.processes import alive, all_gone, endless
from tests.support.server.serving import Served, serving, stored, until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("servers")]


# A shell that ignores TERM, a child and a grandchild; `up` when both have become `sleep`.
TREE = """trap '' TERM
SLEEPER &
(SLEEPER & wait) &
until [ "$(grep -l sleep /proc/[0-9]*/comm | wc -l)" -ge 2 ]; do :; done
echo up
wait"""


def bash(command: str) -> list[Line]:
    return [TextChunk(f"```bash\n{command}\n```\n"), Finished("stop")]


async def test_disconnect_is_not_cancel(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    provider = Scripted([[TextChunk("Here is one. "), Pause(go_on), TextChunk("Two."), Finished("stop")]])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        async with aclosing(served.turn(message="Hello")) as turn:
            started = await until(turn, "run.started")
            last_seen = (await until(turn, "text.delta"))["seq"]
        go_on.set()
        rest = await served.events(started["run"], last_seen)
        whole = await served.events(started["run"])
    assert [event["seq"] for event in whole] == list(range(1, len(whole) + 1))
    assert rest == whole[last_seen:]
    assert (whole[-1]["reason"], whole[-1]["text"]) == ("answered", "Here is one. Two.")


async def test_resume_at_every_event_gives_exactly_the_rest(tmp_path: Path) -> None:
    provider = Scripted([bash("for i in 1 2 3; do echo $i; done"), bash("exit 3"), "Done."])
    async with asyncio.timeout(60), serving(tmp_path, provider) as served:
        whole = await served.chat()
        run = whole[0]["run"]
        for seen in range(len(whole) + 1):
            assert await served.events(run, seen) == whole[seen:]
        by_query = await served.client.get(f"/runs/{run}/events?after={len(whole) - 1}")
        assert by_query.text.count("event: run.finished") == 1
        bad = await served.client.get(f"/runs/{run}/events?after=-1")
        assert (bad.status_code, bad.json()["error"]["code"]) == (400, "invalid_cursor")


async def test_two_watchers_see_the_same_bytes(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    provider = Scripted([["a", Pause(go_on), *(f"{n} " for n in range(500))]])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served, aclosing(served.turn(message="x")) as turn:
        run = (await until(turn, "run.started"))["run"]
        watchers = [asyncio.create_task(watch_bytes(served, run)) for _ in range(5)]
        go_on.set()
        seen = await asyncio.gather(*watchers)
        seen.append(await watch_bytes(served, run))
    assert len(set(seen)) == 1
    assert seen[0].count(b"event: run.finished") == 1


async def watch_bytes(served: Served, run: str) -> bytes:
    return (await served.client.get(f"/runs/{run}/events")).content


async def test_cancel_reaches_the_model_request(tmp_path: Path) -> None:
    never = asyncio.Event()
    provider = Scripted([["Half an ", Pause(never)], "Hello again."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        async with aclosing(served.turn(message="Hello")) as turn:
            started = await until(turn, "run.started")
            await until(turn, "text.delta")
            async with asyncio.timeout(30):
                state = (await served.client.post(f"/runs/{started['run']}/cancel")).json()
            assert state["state"] == "cancelled"
            last = [event async for event in turn][-1]
        assert (last["type"], last["reason"], last["text"]) == ("run.finished", "cancelled", "Half an ")
        again = await served.chat("Still there?", session=started["session"])
    assert again[-1]["text"] == "Hello again."
    assert provider.requests[1].messages[-2] == Message("assistant", "Half an ", shown="Half an ", cut=True)


async def test_cancel_reaches_the_tool_and_its_whole_tree(tmp_path: Path) -> None:
    sleeper = endless()
    provider = Scripted([bash(TREE.replace("SLEEPER", sleeper)), "Done."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        async with aclosing(served.turn(message="Hello")) as turn:
            started = await until(turn, "run.started")
            progress = await until(turn, "tool.progress")
            while "up" not in progress["tail"]:
                progress = await until(turn, "tool.progress")
            assert len(alive(sleeper)) == 2
            async with asyncio.timeout(30):
                first, second = await asyncio.gather(
                    *(served.client.post(f"/runs/{started['run']}/cancel") for _ in range(2))
                )
            assert first.json() == second.json()
            assert all_gone(sleeper)
            last = [event async for event in turn][-1]
        assert last["reason"] == "cancelled"
        await served.client.post(f"/runs/{started['run']}/cancel")  # after the end: harmless
        await served.chat("Next", session=started["session"])
    *_, asked, answer, _user = provider.requests[1].messages
    assert [call.id for call in asked.calls] == [answer.call]
    assert "stopped before it finished" in answer.text


async def test_cancel_before_the_first_event(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(["Hello."])) as served:
        agent = await served.services.factory.agent(LOCAL, ChatRequest(message="x"))
        row = await served.services.runs.start(agent, LOCAL, RunRequest("x"))
        await served.services.runs.cancel(row.id)
        events = await served.events(row.id)
    assert [event["type"] for event in events].count("run.finished") == 1
    assert events[-1]["reason"] in ("cancelled", "answered")


async def test_a_busy_session_is_refused_with_its_run(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    provider = Scripted([["One", Pause(go_on)], "Two"])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        async with aclosing(served.turn(message="x")) as turn:
            started = await until(turn, "run.started")
            body = {"message": "y", "session": started["session"]}
            refused = await served.client.post("/chat", json=body)
            assert (refused.status_code, refused.json()["error"]["run"]) == (409, started["run"])
            go_on.set()
            await until(turn, "run.finished")
        assert (await served.chat("y", session=started["session"]))[-1]["text"] == "Two"


class Broken(Agent):
    """An agent with a bug."""

    async def run(
        self,
        run: str,
        conversation: Conversation,
        inbox: Inbox,
        left: LeftOff | None = None,
        sink: EventSink | None = None,
    ) -> AsyncGenerator[AgentEvent, None]:
        yield RunStarted(run, conversation.session, "broken", [], {})
        raise ZeroDivisionError("planted")


async def test_a_bug_ends_the_run_with_one_terminal_event(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(["Fine."])) as served:
        agent = await served.services.factory.agent(LOCAL, ChatRequest(message="x"))
        broken = Broken(agent.provider, agent.scope, agent.calls, agent.view, agent.discipline)
        row = await served.services.runs.start(broken, LOCAL, RunRequest("x"))
        events = await served.events(row.id)
        assert [event["type"] for event in events] == ["run.started", "run.failed"]
        assert events[-1]["code"] == "internal"
        assert "planted" not in json.dumps(events)
        assert (await served.chat("y", session=row.session))[-1]["text"] == "Fine."


async def test_a_stopping_server_leaves_its_runs_to_the_next(tmp_path: Path) -> None:
    provider = Scripted([["Half", Pause(asyncio.Event())]])
    async with asyncio.timeout(30):
        async with serving(tmp_path, provider) as served, aclosing(served.turn(message="x")) as turn:
            await until(turn, "text.delta")
            await served.services.runs.close()
            last = [event async for event in turn][-1]
            assert (last["type"], last["code"]) == ("notice", "suspended"), "it goes on when the server is back"


async def test_what_a_killed_server_left_is_settled_at_the_next_start(tmp_path: Path) -> None:
    async with stored(tmp_path) as store:
        asked = Message(
            "assistant", "```bash\nrm -r x\n```", calls=(AskedCall("c1", "bash", {"command": "rm -r x"}, "fence"),)
        )
        await store.write(
            [
                SessionRow("ses_1", "local", 1.0, "t"),
                RunRow("run_1", "ses_1", "local", "scripted", "running", 1.0),
                MessageRow("ses_1", 0, "run_1", dump(Message("user", "Remove x"))),
                MessageRow("ses_1", 1, "run_1", dump(asked)),
                EventRow("run_1", 1, "tool.started", '{"type": "tool.started", "call": "c1"}'),
            ]
        )
    provider = Scripted(["I will look first."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        events = await served.events("run_1")
        assert [(event["seq"], event["type"]) for event in events] == [(1, "tool.started"), (2, "run.failed")]
        assert events[-1]["code"] == "interrupted"
        assert (await served.client.get("/runs/run_1")).json()["state"] == "interrupted"
        await served.chat("And?", session="ses_1")
    answer = provider.requests[0].messages[-2]
    assert (answer.role, answer.call) == ("tool", "c1")
    assert "outcome is unknown" in answer.text


@pytest.mark.parametrize(
    ("options", "fingerprint"),
    [
        ({"session": "s", "when_busy": "queue"}, "f78e746cbe0e63efe5ca99ab7eefbf44b956b4f9b19782dd6015b6134647db54"),
        ({"session": "x", "approval": "auto"}, "1e5a6b79132985af39acb999a5d98e39bb222b4a84e64e69e33ff41f4e485488"),
        (
            {"session": "ses_1", "model": "m", "tools": ["a"], "max_rounds": 3, "max_calls": 4, "max_tokens": 5}
            | {"time_limit_s": 6, "inactivity_s": 7, "when_busy": "queue", "on_disconnect": "cancel"}
            | {"approval": "ask", "when_absent": "deny", "without_vision": "describe", "system": "Be"},
            "d96da9816859c7eba57e7155efe0ab161e14d1cc9c04dd58603b21c5502ce292",
        ),
    ],
)
def test_a_request_has_the_fingerprint_that_is_stored_with_older_keys(
    options: dict[str, object], fingerprint: str
) -> None:
    assert ChatRequest.model_validate({"message": "Hi é中"} | options).fingerprint() == fingerprint
