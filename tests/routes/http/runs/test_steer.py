"""Messages for a run under way, runs in line, and requests that come twice."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from app.core.messages import Message, dump
from app.models.scripted import Line, Pause, Scripted
from app.storage.principals import LOCAL_USER as LOCAL
from app.storage.runs import KEY_LIFE_S, EventRow, InboxRow, KeyRow, RunRow
from app.storage.sessions import MessageRow, SessionRow
from app.transcript.inbox import MAX_WAITING
from app.transcript.run_request import MAX_LINE, RunRequest
from routes.protocol.requests import ChatRequest
from tests.support.server.serving import Served, answer_in, serving, stored, until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("servers")]


async def steer(served: Served, run: str, text: str) -> int:
    return (await served.client.post(f"/runs/{run}/messages", json={"message": text})).status_code


async def test_a_message_is_put_in_after_the_round_and_answered_by_the_same_run(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    calls: list[Line] = ["```bash\necho one\n```\n", Pause(go_on)]
    provider = Scripted([calls, "And in French: bonjour."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served, aclosing(served.turn(message="x")) as turn:
        run = (await until(turn, "run.started"))["run"]
        assert await steer(served, run, "Also in French.") == 202
        go_on.set()
        rest = [event async for event in turn]
    types = [event["type"] for event in rest]
    added = types.index("message.added")
    assert rest[added]["text"] == "Also in French."
    assert types.index("tool.finished") < added < types.index("round.started", added)
    assert (answer_in(rest[-1]["text"]), rest[-1]["rounds"]) == ("And in French: bonjour.", 2)
    assert [message.role for message in provider.requests[1].messages[-4:]] == ["user", "assistant", "tool", "user"]


async def test_a_message_during_the_last_answer_keeps_the_run_going(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    provider = Scripted([["Done.", Pause(go_on)], "Yes, and that."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served, aclosing(served.turn(message="x")) as turn:
        run = (await until(turn, "run.started"))["run"]
        assert await steer(served, run, "And that?") == 202
        go_on.set()
        assert (await until(turn, "run.finished"))["text"] == "Yes, and that."


async def test_a_run_that_has_ended_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Done."])) as served:
        run = (await served.chat())[0]["run"]
        response = await served.client.post(f"/runs/{run}/messages", json={"message": "More?"})
        assert (response.status_code, response.json()["error"]["code"]) == (409, "run_ended")
        assert (await served.client.post("/runs/run_none/messages", json={"message": "x"})).status_code == 404


async def test_an_accepted_message_is_never_lost(tmp_path: Path) -> None:
    provider = Scripted([["Half", Pause(asyncio.Event())], "I see both."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        async with aclosing(served.turn(message="x")) as turn:
            started = await until(turn, "run.started")
            run, session = started["run"], started["session"]
            await until(turn, "text.delta")
            assert await steer(served, run, "Wait!") == 202
            await served.client.post(f"/runs/{run}/cancel")
            rest = [event["type"] async for event in turn]
        assert rest[-2:] == ["message.added", "run.finished"]
        await served.chat("Go on.", session=session)
    assert [message.text for message in provider.requests[1].messages[-4:]] == ["x", "Half", "Wait!", "Go on."]


async def test_a_message_accepted_before_a_kill_is_in_the_history_after_it(tmp_path: Path) -> None:
    async with stored(tmp_path) as store:
        await store.write(
            [
                SessionRow("ses_1", "local", 1.0, "t"),
                RunRow("run_1", "ses_1", "local", "scripted", "running", 1.0),
                MessageRow("ses_1", 0, "run_1", dump(Message("user", "First"))),
                InboxRow("run_1", 1, "Second"),
                RunRow("run_2", "ses_1", "local", "scripted", "queued", 2.0),
                InboxRow("run_2", 0, "Third"),
                EventRow("run_1", 1, "run.started", '{"type": "run.started"}'),
            ]
        )
    provider = Scripted(["One", "Two", "Now."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        assert [(await served.events(run))[-1]["text"] for run in ("run_1", "run_2")] == ["One", "Two"]
        await served.chat("Fourth", session="ses_1")
        assert await served.services.store.inbox("run_1") == []
    said = [message.text for message in provider.requests[2].messages[-6:]]
    assert said == ["First", "Second", "One", "Third", "Two", "Fourth"]


async def test_a_queued_run_waits_for_its_turn(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    provider = Scripted([["One", Pause(go_on)], "Two", "Three"])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served, aclosing(served.turn(message="a")) as turn:
        started = await until(turn, "run.started")
        body = {"session": started["session"], "when_busy": "queue"}
        async with aclosing(served.turn(message="b", **body)) as second:
            notice = await until(second, "notice")
            assert (notice["code"], started["run"] in notice["message"]) == ("queued", True)
            async with aclosing(served.turn(message="c", **body)) as third:
                await until(third, "notice")
                [*_, waiting] = (await served.client.get(f"/sessions/{started['session']}")).json()["runs"]
                assert await steer(served, waiting["id"], "and d") == 202
                go_on.set()
                assert (await until(second, "run.finished"))["text"] == "Two"
                assert (await until(third, "message.added"))["text"] == "and d"
                assert (await until(third, "run.finished"))["text"] == "Three"
    said = [message.text for message in provider.requests[2].messages[-6:]]
    assert said == ["a", "One", "b", "Two", "c", "and d"]


async def test_a_queued_run_can_be_cancelled(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    provider = Scripted([["One", Pause(go_on)], "Two"])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served, aclosing(served.turn(message="a")) as turn:
        session = (await until(turn, "run.started"))["session"]
        async with aclosing(served.turn(message="b", session=session, when_busy="queue")) as second:
            await until(second, "notice")
            runs = (await served.client.get(f"/sessions/{session}")).json()["runs"]
            assert [run["state"] for run in runs] == ["running", "queued"]
            await served.client.post(f"/runs/{runs[1]['id']}/cancel")
            assert [event["reason"] async for event in second if event["type"] == "run.finished"] == ["cancelled"]
        go_on.set()
        await until(turn, "run.finished")
        assert (await served.chat("c", session=session))[-1]["text"] == "Two"


async def test_what_waits_for_a_session_or_a_run_is_bounded(tmp_path: Path) -> None:
    provider = Scripted([["One", Pause(asyncio.Event())]])
    async with asyncio.timeout(60), serving(tmp_path, provider) as served, aclosing(served.turn(message="a")) as turn:
        started = await until(turn, "run.started")
        await until(turn, "text.delta")
        assert [await steer(served, started["run"], "x") for _ in range(MAX_WAITING + 1)] == [202] * MAX_WAITING + [429]
        agent = await served.services.factory.agent(LOCAL, ChatRequest(message="x"))
        for _ in range(MAX_LINE - 1):
            await served.services.runs.start(agent, LOCAL, RunRequest("x", started["session"], "queue"))
        body = {"message": "b", "session": started["session"], "when_busy": "queue"}
        refused = await served.client.post("/chat", json=body)
        assert (refused.status_code, refused.json()["error"]["run"]) == (409, started["run"])
        assert "15 runs wait" in refused.json()["error"]["message"]


HEADERS = {"Idempotency-Key": "k1"}


async def test_the_same_key_and_request_attach_to_the_same_run(tmp_path: Path) -> None:
    body = {"message": "Hello"}
    async with asyncio.timeout(30), serving(tmp_path, Scripted(["Hi."])) as served:
        answers = await asyncio.gather(*(served.client.post("/chat", json=body, headers=HEADERS) for _ in range(5)))
        assert len({answer.headers["x-run-id"] for answer in answers}) == 1
        assert len({answer.content for answer in answers}) == 1
        told = await served.client.post("/chat", json=body | {"when_busy": "refuse"}, headers=HEADERS)
        assert told.content == answers[0].content  # a default written out is the same request
        other = await served.client.post("/chat", json={"message": "Bye"}, headers=HEADERS)
        assert (other.status_code, other.json()["error"]["code"]) == (422, "key_reused")
    async with serving(tmp_path, Scripted([])) as served:  # and after a restart
        again = await served.client.post("/chat", json=body, headers=HEADERS)
        assert again.content == answers[0].content


async def test_a_key_is_forgotten_after_a_day(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi.", "Hi again."])) as served:
        first = await served.client.post("/chat", json={"message": "Hello"}, headers=HEADERS)
        row = await served.services.store.key("local", "k1")
        assert row
        await served.services.store.forget_before(0, row.created + 1)  # else it is the first one's for a day
        await served.services.store.write([KeyRow(row.principal, row.key, row.body, row.run, row.created - KEY_LIFE_S)])
        second = await served.client.post("/chat", json={"message": "Hello"}, headers=HEADERS)
    assert first.headers["x-run-id"] != second.headers["x-run-id"]


@pytest.mark.parametrize("key", ["", "x" * 300])
async def test_a_key_that_is_none_is_refused(tmp_path: Path, key: str) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        response = await served.client.post("/chat", json={"message": "x"}, headers={"Idempotency-Key": key})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_key")
