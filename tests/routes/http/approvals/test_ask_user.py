"""What the model asks the person of its run: by HTTP, in the terminal, and where nobody answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.models.scripted import Scripted
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.server.dragoman_process import server
from tests.support.server.serving import events_of, serving, until
from tests.support.terminal.terminals import terminal
from tools.builtin.ask_user import MAX_CHOICES, MAX_QUESTION, OWN_QUESTION

pytestmark = pytest.mark.anyio
LIMIT_S = 60
Turn = AsyncGenerator[dict[str, Any], None]


def asking(**arguments: object) -> str:
    return f"```ask_user\n{json.dumps(arguments)}\n```"


COLOUR = asking(question="Which colour?", choices=["red", "blue", "red"])
NAME = asking(question="What is its name?")


async def asked(turn: Turn) -> tuple[dict[str, Any], str]:
    """The question, and where to answer it."""
    started = await until(turn, "run.started")
    question = await until(turn, "approval.required")
    assert question["name"] == OWN_QUESTION
    return question, f"/runs/{started['run']}/approvals/{question['call']}"


ANSWERS = {
    "a choice": (COLOUR, {"answer": "blue"}, "blue"),
    "other words": (COLOUR, {"other": "neither"}, "neither"),
    "a choice and other words": (COLOUR, {"answer": "red", "other": "a dark one"}, "red\na dark one"),
    "a text": (NAME, {"answer": " Ada "}, "Ada"),
}


async def test_a_person_answers_the_model(tmp_path: Path) -> None:
    script = [reply for question, _, _ in ANSWERS.values() for reply in (question, "Good.")]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(script)) as served:
        for what, (_, answer, told) in ANSWERS.items():
            async with aclosing(served.turn(message="x")) as turn:
                question, url = await asked(turn)
                assert question["expires_at"] is None, "it waits as an approval does"
                body = {"decision": "approve", "arguments": answer}
                assert (await served.client.post(url, json=body)).status_code == 200
                resolved = await until(turn, "approval.resolved")
                assert (resolved["decision"], resolved.get("arguments")) == ("approved", None), what
                assert (await until(turn, "tool.finished"))["text"] == told, what
                assert (await until(turn, "run.finished"))["reason"] == "answered"


async def test_answers_that_do_not_fit_are_refused_and_a_person_may_decline(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([COLOUR, "Then not."])) as served:
        async with aclosing(served.turn(message="x")) as turn:
            question, url = await asked(turn)
            assert question["arguments"]["schema"]["properties"]["answer"]["enum"] == ["red", "blue"]
            for wrong in ({}, {"answer": "green"}, {"other": " "}, {"answer": 3}, {"other": "x" * 30_000}):
                body = {"decision": "approve", "arguments": wrong}
                answer = await served.client.post(url, json=body)
                assert (answer.status_code, answer.json()["error"]["code"]) == (422, "unfit_arguments"), wrong
            assert (await served.client.post(url, json={"decision": "deny", "note": "ask Bob"})).status_code == 200
            finished = await until(turn, "tool.finished")
        assert not finished["ok"] and finished["text"].startswith("The person does not want to answer: ask Bob.")


async def test_an_answer_that_does_not_come_in_time(tmp_path: Path) -> None:
    flags = {"approval_time_limit_s": "1"}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([NAME, "Then not."]), None, **flags) as served:
        events = await served.chat("x")
    [finished] = [event for event in events if event["type"] == "tool.finished"]
    assert finished["text"].startswith("The person did not answer in time.")


async def test_a_question_of_a_killed_server_is_asked_again(tmp_path: Path) -> None:
    """The tool had begun, and all that it does is ask: another question takes the place of the old one."""
    question, again = (stream(says(text), chunk(finish="stop"), DONE) for text in (NAME, "Then tell me."))
    async with asyncio.timeout(LIMIT_S), upstream(question, again, chats=True) as model:
        async with server(tmp_path, model.base_url) as (client, process):
            with suppress(httpx2.TransportError):
                async with client.stream("POST", "/chat", json={"message": "x"}) as response:
                    run, session = response.headers["x-run-id"], response.headers["x-session-id"]
                    async with aclosing(events_of(response)) as events:
                        await until(events, "approval.required")
                        process.kill()
            await process.wait()
        async with server(tmp_path, model.base_url) as (client, _):
            async with client.stream("GET", f"/runs/{run}/events") as response:
                async with aclosing(events_of(response)) as events:
                    assert (await until(events, "approval.resolved"))["decision"] == "withdrawn"
                    asked = await until(events, "approval.required")
                    path = f"/runs/{run}/approvals/{asked['call']}"
                    decision = {"decision": "approve", "arguments": {"answer": "Ann"}}
                    answer = await client.post(path, json=decision)
                    assert answer.status_code == 200, answer.text
                    finished = await until(events, "tool.finished")
                    assert finished["ok"] and (await until(events, "run.finished"))["reason"] == "answered"
            assert (await client.get("/approvals")).json()["approvals"] == []
            messages = (await client.get(f"/sessions/{session}")).json()["messages"]
            [call], [result] = messages[1]["calls"], [one for one in messages if one["role"] == "tool"]
            assert result["call"] == call["id"] == finished["call"]


WRONG = {
    "an empty question": (asking(question=" "), "question is empty"),
    "a long question": (asking(question="x" * (MAX_QUESTION + 1)), "question is too long"),
    "many choices": (asking(question="x", choices=[str(n) for n in range(MAX_CHOICES + 1)]), "at most 20"),
    "a long choice": (asking(question="x", choices=["x" * 301]), "A choice is too long"),
}


async def test_questions_that_cannot_be_asked_are_answered_with_the_right_form(tmp_path: Path) -> None:
    script = [*(call for call, _ in WRONG.values()), "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(script)) as served:
        events = await served.chat("x")
    told = [event["text"] for event in events if event["type"] == "tool.finished"]
    assert not [event for event in events if event["type"] == "approval.required"]
    for text, (_, expected) in zip(told, WRONG.values(), strict=True):
        assert expected in text


@pytest.mark.parametrize("wish", [{"approval": "deny"}, {"when_absent": "deny"}])
async def test_where_nobody_answers_it_is_not_offered_and_denied_at_once(tmp_path: Path, wish: dict[str, str]) -> None:
    call = f"<tool_call>{json.dumps({'name': 'ask_user', 'arguments': {'question': 'Who?'}})}</tool_call>"
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([call, "Then not."])) as served:
        events = await served.chat("x", **wish)
    assert "ask_user" not in events[0]["tools"] and "bash" in events[0]["tools"]
    [rejected] = [event for event in events if event["type"] == "tool.rejected"]
    assert "No person answers questions in this run" in rejected["reason"]
    assert events[-1]["reason"] == "answered"


KEYS = {
    "the number of a choice": (COLOUR, "2\r", "blue"),
    "other words": (COLOUR, "3\r", "3"),
    "a text": (NAME, "Ada\r", "Ada"),
    "nothing": (NAME, "\r", "The person does not want to answer"),
}


@pytest.mark.parametrize("what", KEYS)
async def test_a_person_answers_in_the_terminal(what: str, tmp_path: Path) -> None:
    call, keys, told = KEYS[what]
    provider = Scripted([call, "Good."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with("\n>")
            shown.press("Ask.\r")
            text = await shown.ends_with("answer:")
            assert "The agent asks you:" in text and ("│ 1  red" in text) is (call == COLOUR)
            shown.press(keys)
            await shown.until("Good.")
    assert any(message.role == "tool" and told in message.text for message in provider.requests[-1].messages)
