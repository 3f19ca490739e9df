"""What MCP servers ask people, and the doors to tools that are too many to list."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from math import inf
from pathlib import Path
from typing import Any

import pytest

from app.mcp.elicitation import DECLINED, elicit
from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.mcp.served import READS, helper, serving_mcp
from tests.support.server.serving import until
from tools.mcp.connection.elicitation import MOST_WAITING
from tools.mcp.model import ElicitationQuestion
from tools.tool import Context, NoAnswer

pytestmark = pytest.mark.anyio
ASK = "```mcp__helper__ask\n```"
NAME = "mcp__helper__elicitation"
Turn = AsyncGenerator[dict[str, Any], None]


def visiting(url: str) -> str:
    return f"```mcp__helper__visit\n{json.dumps({'url': url})}\n```"


async def asked(turn: Turn) -> tuple[dict[str, Any], str]:
    """The question, and where to answer it."""
    started = await until(turn, "run.started")
    question = await until(turn, "approval.required")
    assert question["name"] == NAME
    return question, f"/runs/{started['run']}/approvals/{question['call']}"


async def told(turn: Turn) -> tuple[str, Any]:
    """What the server heard: the action and the content."""
    text = (await until(turn, "tool.finished"))["text"]
    answer = json.loads(text.removeprefix("answered: "))
    return answer["action"], answer.get("content")


async def test_a_person_answers_a_server(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([ASK, "Blue."]), {"helper": helper()}, tools=READS) as served:
        async with aclosing(served.turn(message="x")) as turn:
            question, url = await asked(turn)
            assert question["arguments"]["message"] == "Which colour?"
            assert "The MCP server helper asks you" in question["reason"]
            assert [one["name"] for one in (await served.client.get("/approvals")).json()["approvals"]] == [NAME]
            for wrong in ({}, {"arguments": {"colour": "green"}}, {"arguments": {"colour": "red"}, "scope": "session"}):
                answer = await served.client.post(url, json={"decision": "approve", **wrong})
                assert (answer.status_code, answer.json()["error"]["code"]) == (422, "unfit_arguments"), wrong
            body = {"decision": "approve", "arguments": {"colour": "blue"}}
            assert (await served.client.post(url, json=body)).status_code == 200
            assert (await served.client.post(url, json=body)).status_code == 409
            resolved = await until(turn, "approval.resolved")
            assert (resolved["call"], resolved["decision"]) == (question["call"], "approved")
            assert await told(turn) == ("accept", {"colour": "blue", "size": 7}), "the form's default is in it"
            assert (await until(turn, "run.finished"))["reason"] == "answered"


async def test_several_questions_at_once_are_asked_one_by_one_and_not_without_end(tmp_path: Path) -> None:
    quiz = '```mcp__helper__quiz\n{"count": 6}\n```'
    async with serving_mcp(tmp_path, Scripted([quiz, "Done."]), {"helper": helper()}, tools=READS) as served:
        async with aclosing(served.turn(message="x")) as turn:
            started, messages = await until(turn, "run.started"), []
            for number in range(MOST_WAITING):
                question = await until(turn, "approval.required")
                messages.append(question["arguments"]["message"])
                assert len((await served.client.get("/approvals")).json()["approvals"]) == 1, "one at a time"
                body = {"decision": "deny"} if number else {"decision": "approve", "arguments": {"colour": "red"}}
                url = f"/runs/{started['run']}/approvals/{question['call']}"
                assert (await served.client.post(url, json=body)).status_code == 200
            text = (await until(turn, "tool.finished"))["text"]
        assert json.loads(text) == ["accept", *["decline"] * 5]
        assert len(set(messages)) == MOST_WAITING and all("question" in message for message in messages)


async def test_a_person_declines(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([ASK, "Then not."]), {"helper": helper()}, tools=READS) as served:
        async with aclosing(served.turn(message="x")) as turn:
            _, url = await asked(turn)
            assert (await served.client.post(url, json={"decision": "deny"})).status_code == 200
            assert (await told(turn))[0] == "decline"


async def test_nobody_answers_in_time(tmp_path: Path) -> None:
    flags = {"tools": READS, "approval_time_limit_s": "1"}
    async with serving_mcp(tmp_path, Scripted([ASK, "Then not."]), {"helper": helper()}, **flags) as served:
        async with aclosing(served.turn(message="x")) as turn:
            question, _ = await asked(turn)
            assert question["expires_at"] < time.time() + 2
            assert (await until(turn, "approval.resolved"))["decision"] == "expired"
            assert (await told(turn))[0] == "decline"


@pytest.mark.parametrize("wish", [{"approval": "deny"}, {"when_absent": "deny"}])
async def test_a_run_that_asks_nobody_asks_nobody(tmp_path: Path, wish: dict[str, str]) -> None:
    async with serving_mcp(tmp_path, Scripted([ASK, "Then not."]), {"helper": helper()}, tools=READS) as served:
        events = await served.chat("x", **wish)
        assert not [event for event in events if event["type"] == "approval.required"]
        assert [event["text"] for event in events if event["type"] == "tool.finished"] == [
            'answered: {"action": "decline"}'
        ]


@pytest.mark.usefixtures("replayed")
async def test_a_question_ends_with_its_run(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([ASK, ASK]), {"helper": helper()}, tools=READS) as served:
        async with aclosing(served.turn(message="x")) as turn:
            question, url = await asked(turn)
            await served.client.post(f"{url.partition('/approvals')[0]}/cancel")
            resolved = await until(turn, "approval.resolved")
            assert (resolved["call"], resolved["decision"]) == (question["call"], "withdrawn")
            assert (await until(turn, "run.finished"))["reason"] == "cancelled"
        assert (await served.client.get("/approvals")).json()["approvals"] == []
        assert (await served.client.post(url, json={"decision": "deny"})).status_code == 409


async def test_a_question_is_asked_again_by_the_next_server(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([ASK]), {"helper": helper()}, tools=READS) as served:
        async with aclosing(served.turn(message="x")) as turn:
            question, _ = await asked(turn)
            await served.services.runs.close()
            assert (await until(turn, "approval.resolved"))["decision"] == "withdrawn"
    async with serving_mcp(tmp_path, Scripted(["Well."]), {"helper": helper()}, tools=READS) as served:
        waiting: list[dict[str, Any]] = []
        while not waiting:
            waiting = (await served.client.get("/approvals")).json()["approvals"]
        assert waiting[0]["call"] != question["call"]


async def test_a_form_that_no_json_can_tell_is_not_asked() -> None:
    asked = list[str]()

    async def ask(name: str, *_: object) -> NoAnswer:
        asked.append(name)
        return NoAnswer("denied")

    context = Context(Path("/"), ask=ask)
    for default in (7, inf):
        schema = {"type": "object", "properties": {"size": {"type": "number", "default": default}}}
        assert await elicit(ElicitationQuestion("helper", "How many?", schema=schema, context=context)) == DECLINED
    assert asked == [NAME]


async def test_a_page_to_open_is_shown_with_its_host_and_nothing_else_is(tmp_path: Path) -> None:
    page = "https://pay.example.com/order?id=1"
    hidden = "https://evil.example\\.pay.example.com/"  # which browsers take for a page of evil.example
    script = [visiting(page), "Paid.", visiting("http://pay.example.com/"), visiting(hidden), "No."]
    async with serving_mcp(tmp_path, Scripted(script), {"helper": helper()}, tools=READS) as served:
        async with aclosing(served.turn(message="x")) as turn:
            question, url = await asked(turn)
            shown = {"message": "Pay there.", "url": page, "host": "pay.example.com"}
            assert question["arguments"] == shown
            assert (await served.client.post(url, json={"decision": "approve"})).status_code == 200
            assert (await told(turn))[0] == "accept"
        events = await served.chat("x")
        assert not [event for event in events if event["type"] == "approval.required"]


def through_the_door(name: str, **arguments: object) -> str:
    return f"```call_tool\n{json.dumps({'name': name, 'arguments': arguments})}\n```"


def listed(events: list[dict[str, Any]]) -> list[str]:
    return [name for name in events[0]["tools"] if name.startswith("mcp__") or name.endswith(("_tools", "_tool"))]


async def test_tools_that_are_too_many_are_searched_and_called_through_a_door(tmp_path: Path) -> None:
    script = [
        '```search_tools\n{"query": "look up trains"}\n```',
        through_the_door("mcp__helper__echo", text="hi"),
        "Done.",
    ]
    provider = Scripted(script)
    async with serving_mcp(tmp_path, provider, {"helper": helper("60")}, tools=READS, window="8000") as served:
        events = await served.chat("x")
        assert listed(events) == ["search_tools", "call_tool"]
        found, echoed = [event["text"] for event in events if event["type"] == "tool.finished"]
        assert "mcp__helper__trains_3: Looks up trains" in found
        assert echoed == "echo: hi"
        assert [event["name"] for event in events if event["type"] == "tool.started"] == [
            "search_tools",
            "mcp__helper__echo",
        ]
        assert len({json.dumps([tool.name for tool in asked.tools]) for asked in provider.requests}) == 1
        few = await served.chat("x", tools=["mcp__helper__echo"])
        assert listed(few) == ["mcp__helper__echo"], "those that were asked for by name are listed"


async def test_a_large_window_lists_them_all(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted(["Hi."]), {"helper": helper("60")}, window="200000") as served:
        assert len(listed(await served.chat("x"))) == 68


async def test_a_small_window_lists_the_few_that_fit_and_a_session_keeps_them(tmp_path: Path) -> None:
    provider = Scripted(["Hi.", "Hi.", "Hi."])
    async with serving_mcp(tmp_path, provider, {"helper": helper()}, mcp_tools_share="0.01", window="8000") as served:
        first = await served.chat("A colour, please.")
        again = await served.chat("Play a sound.", session=first[0]["session"])
        other = await served.chat("Play something.")
    chosen, doors = "mcp__helper__ask", {"search_tools", "call_tool"}
    assert {*listed(first)} == {chosen, *doors} and listed(again) == listed(first)
    assert "mcp__helper__sound" in listed(other) and chosen not in listed(other)
    openings = [request.whole()[0].text for request in provider.requests]
    assert openings[0] == openings[1] != openings[2] and chosen in openings[0], "so that the prefix cache holds"


async def test_the_door_asks_for_the_tool_that_is_meant(tmp_path: Path) -> None:
    provider = Scripted([through_the_door("mcp__helper__echo", text="hi"), "Done."])
    async with serving_mcp(tmp_path, provider, {"helper": helper()}, mcp_tools_share="0") as served:
        async with aclosing(served.turn(message="x")) as turn:
            started = await until(turn, "run.started")
            question = await until(turn, "approval.required")
            assert (question["name"], question["arguments"]) == ("mcp__helper__echo", {"text": "hi"})
            url = f"/runs/{started['run']}/approvals/{question['call']}"
            body = {"decision": "approve", "arguments": {"text": "ho"}}
            assert (await served.client.post(url, json=body)).status_code == 200
            assert (await until(turn, "tool.finished"))["text"].endswith("echo: ho")
        [used] = [row for row in (await served.client.get("/audit")).json()["audit"] if row["decision"] == "ask"]
        assert used["action"] == "mcp__helper__echo"


async def test_the_door_is_not_there_for_those_who_may_use_nothing_behind_it(tmp_path: Path) -> None:
    call = {"name": "call_tool", "arguments": {"name": "mcp__helper__echo", "arguments": {"text": "hi"}}}
    provider = Scripted([f"<tool_call>{json.dumps(call)}</tool_call>", "Done."])
    async with serving_mcp(tmp_path, provider, {"helper": helper()}, mcp_tools_share="0") as served:
        served.client.headers |= await bearer(served, "bob")
        events = await served.chat("x")
        assert listed(events) == []
        assert [event for event in events if event["type"] == "tool.rejected"]
        assert not [event for event in events if event["type"] == "tool.started"]
