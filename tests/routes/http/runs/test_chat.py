"""POST /chat: one turn with a scripted model and real tools, and every kind of bad request."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.core.provider import Finished, ProviderFailed, TextChunk, TokenUsage
from app.models.scripted import Line, Raise, Scripted
from parsing import BadCall, Call, CallOpened, Thought
from tests.support.models.replies import says
from tests.support.server.events import kinds
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

DONE: list[Line] = [TextChunk("All done."), TokenUsage(20, 4), Finished("stop")]
BASH: list[Line] = [TextChunk("I will run it.\n```ba"), TextChunk("sh\necho hello world\n```\n"), Finished("stop")]


def only(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    [event] = [event for event in events if event["type"] == kind]
    return event


async def test_one_turn_with_a_tool(tmp_path: Path) -> None:
    provider = Scripted([BASH, DONE])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        events = await served.chat("Print hello world with the shell.")
        seen = [kind for kind in kinds(events) if kind not in ("text.delta", "tool.delta", "tool.progress")]
        assert seen == [
            "run.started",
            "round.started",
            "usage",
            "tool.started",
            "tool.finished",
            "round.started",
            "usage",
            "run.finished",
        ]
        started, finished = only(events, "tool.started"), only(events, "tool.finished")
        assert (started["name"], started["arguments"]) == ("bash", {"command": "echo hello world"})
        assert (finished["ok"], finished["exit_code"], finished["call"]) == (True, 0, started["call"])
        assert "hello world" in finished["text"]
        progress = [event for event in events if event["type"] == "tool.progress"]
        assert progress
        assert progress[-1]["tail"] == ["hello world"]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        shown = "".join(event["text"] for event in events if event["type"] == "text.delta")
        block = "```bash\necho hello world\n```\n"
        assert shown.split() == f"I will run it. {block} All done.".split()
        last = events[-1]
        assert (last["reason"], last["rounds"], last["calls"]) == ("answered", 2, 1)
        assert last["text"] == f"{block}\nAll done."

        session = (await served.client.get(f"/sessions/{events[0]['session']}")).json()
        assert [message["role"] for message in session["messages"]] == ["user", "assistant", "tool", "assistant"]
        assert session["messages"][2]["call"] == started["call"]
        assert session["runs"][0]["state"] == "answered"


async def test_the_next_message_continues_the_session(tmp_path: Path) -> None:
    provider = Scripted([says("I am well."), says("You said hello.")])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        first = await served.chat("Hello")
        await served.chat("What did I say?", session=first[0]["session"])
    assert [message.text for message in provider.requests[1].messages[-3:]] == [
        "Hello",
        "I am well.",
        "What did I say?",
    ]


async def test_sessions_keep_their_messages_across_restarts(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([says("One.")])) as served:
        events = await served.chat("First")
    provider = Scripted([says("Two.")])
    async with serving(tmp_path, provider) as served:
        assert await served.events(events[0]["run"]) == events
        await served.chat("Second", session=events[0]["session"])
    assert [message.text for message in provider.requests[0].messages[-3:]] == ["First", "One.", "Second"]


async def test_a_native_call_runs_like_one_in_text(tmp_path: Path) -> None:
    call: list[Line] = [
        CallOpened(0, "bash"),
        Call(0, "bash", {"command": "echo native"}, "native"),
        Finished("tool_calls"),
    ]
    async with serving(tmp_path, Scripted([[Thought("Hm."), *call], DONE])) as served:
        events = await served.chat()
    assert only(events, "tool.started")["dialect"] == "native"
    assert "native" in only(events, "tool.finished")["text"]
    assert only(events, "reasoning.delta")["text"] == "Hm."


@pytest.mark.parametrize(
    ("reply", "said_to_model"),
    [
        (says('<tool_call>{"name": "no_such_tool", "arguments": {}}</tool_call>'), "no_such_tool"),
        (says('<tool_call>{"name": "bash", "arguments": {"command": 5}}</tool_call>'), "command"),
        ([BadCall(0, "{", "The arguments were cut off. Send the whole call again."), Finished("stop")], "cut off"),
    ],
)
async def test_a_bad_call_is_answered_and_never_ends_the_run(
    tmp_path: Path, reply: list[Line], said_to_model: str
) -> None:
    provider = Scripted([reply, DONE])
    async with serving(tmp_path, provider) as served:
        events = await served.chat()
    assert said_to_model in only(events, "tool.rejected")["reason"]
    assert "tool.started" not in kinds(events)
    assert events[-1]["reason"] == "answered"
    asked = provider.requests[1].messages
    assert [call.id for call in asked[-2].calls] == [asked[-1].call]
    assert said_to_model in asked[-1].text


async def test_every_call_gets_one_result_under_its_own_id(tmp_path: Path) -> None:
    calls = [
        '<tool_call>{"name": "bash", "arguments": {"command": "echo one"}}</tool_call>',
        '<tool_call>{"name": "nothing", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "bash", "arguments": {"command": "echo three"}}</tool_call>',
    ]
    provider = Scripted([says("\n".join(calls)), DONE])
    async with serving(tmp_path, provider) as served:
        await served.chat()
    *_, asked, one, two, three = provider.requests[1].messages
    assert [call.id for call in asked.calls] == [one.call, two.call, three.call]
    assert len({one.call, two.call, three.call}) == 3
    assert "one" in one.text
    assert "nothing" in two.text
    assert "three" in three.text


async def test_the_round_limit_ends_a_run_that_goes_on_calling(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([BASH] * 5)) as served:
        events = await served.chat(max_rounds=2)
        assert (events[-1]["type"], events[-1]["reason"], events[-1]["rounds"]) == ("run.finished", "round_limit", 2)


async def test_a_model_that_is_down_fails_the_run_and_not_the_session(tmp_path: Path) -> None:
    down = ProviderFailed("model_down", "Nothing listens there. Start it.", retryable=False)
    provider = Scripted([[TextChunk("Half an ans"), Raise(down)], says("Here again.")])
    async with serving(tmp_path, provider) as served:
        events = await served.chat("Hello")
        assert kinds(events).count("run.failed") == 1
        assert events[-1] == {
            "type": "run.failed",
            "code": "model_down",
            "message": "Nothing listens there. Start it.",
            "retryable": False,
            "seq": events[-1]["seq"],
        }
        again = await served.chat("Still there?", session=events[0]["session"])
        assert again[-1]["text"] == "Here again."
    assert [(message.text, message.cut) for message in provider.requests[1].messages[-3:]] == [
        ("Hello", False),
        ("Half an ans", True),
        ("Still there?", False),
    ]


async def test_hostile_words_of_a_model_do_not_break_the_stream(tmp_path: Path) -> None:
    words = "\ud800 \u2028 \u0085 \0 \x1b[2J </script> \r\ndata: x\n\n"
    async with serving(tmp_path, Scripted([says(words)])) as served:
        events = await served.chat()
        assert "".join(event["text"] for event in events if event["type"] == "text.delta") == words
        assert await served.events(events[0]["run"]) == events


BAD_BODIES: dict[str, tuple[bytes, int, str]] = {
    "not JSON": (b"hello", 400, "not JSON"),
    "empty": (b"", 400, "not JSON"),
    "not UTF-8": (b'{"message": "\xff\xfe"}', 400, "not UTF-8"),
    "an array": (b"[1]", 400, "not an object"),
    "10,000 deep": (b'{"message":' + b"[" * 10_000 + b"]" * 10_000 + b"}", 400, "too deeply"),
    "no message": (b"{}", 422, "message is empty"),
    "null message": (b'{"message": null}', 422, "message"),
    "empty message": (b'{"message": "  "}', 422, "message is empty"),
    "number as message": (b'{"message": 5}', 422, "message"),
    "unknown part": (b'{"message": [{"type": "smell", "text": "x"}]}', 422, "message"),
    "unknown field": (b'{"message": "x", "colour": 1}', 422, "unknown field colour; allowed are message, "),
    "field not text": (rb'{"message": "x", "\ud800": 1}', 422, "the name of a field"),
    "wrong type": (b'{"message": "x", "max_rounds": "three"}', 422, "max_rounds"),
    "too many rounds": (b'{"message": "x", "max_rounds": 201}', 422, "max_rounds"),
    "a temperature above 2": (b'{"message": "x", "temperature": 2.5}', 422, "temperature"),
    "a temperature as text": (b'{"message": "x", "temperature": "1"}', 422, "temperature"),
    "no output": (b'{"message": "x", "max_output_tokens": 0}', 422, "max_output_tokens"),
    "an effort that no server has": (b'{"message": "x", "reasoning_effort": "huge"}', 422, "'minimal', 'low'"),
    "unknown model": (b'{"message": "x", "model": "other"}', 422, "there is no 'other'; there is scripted"),
    "unknown tool": (b'{"message": "x", "tools": ["rm"]}', 422, "bash"),
    "unknown session": (b'{"message": "x", "session": "ses_none"}', 404, "ses_none"),
    "lone surrogate": (rb'{"message": "ab\ud800"}', 422, "at character 2"),
    "NUL": (rb'{"message": "a\u0000"}', 422, "at character 1"),
    "too long": (json.dumps({"message": "x" * 2000}).encode(), 413, "DRAGOMAN_MAX_MESSAGE_BYTES"),
    "far too long": (b"x" * 400_000, 413, "DRAGOMAN_MAX_MESSAGE_BYTES"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
async def test_a_bad_body_gets_a_clear_error(tmp_path: Path, name: str) -> None:
    body, status, told = BAD_BODIES[name]
    async with serving(tmp_path, Scripted([DONE]), max_message_bytes="1024", max_attachment_bytes="1024") as served:
        response = await served.client.post("/chat", content=body)
        assert response.status_code == status
        error = response.json()["error"]
        assert set(error) >= {"code", "message"}
        assert told in error["message"]
        assert (await served.chat())[-1]["reason"] == "answered"  # and the next request works


async def test_the_limit_counts_the_message_and_not_how_json_escapes_it(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([DONE]), max_message_bytes="200000") as served:
        assert (await served.chat("\u0001" * 199_999))[-1]["reason"] == "answered"


async def test_content_parts_are_joined(tmp_path: Path) -> None:
    provider = Scripted([DONE])
    async with serving(tmp_path, provider) as served:
        await served.chat([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])
    assert provider.requests[0].messages[-1].text == "one\ntwo"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/chat", 405),
        ("GET", "/runs/run_none", 404),
        ("GET", "/runs/run_none/events", 404),
        ("POST", "/runs/run_none/cancel", 404),
        ("GET", "/sessions/ses_none", 404),
        ("DELETE", "/sessions/ses_none", 404),
    ],
)
async def test_every_error_has_one_shape(tmp_path: Path, method: str, path: str, status: int) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        response = await served.client.request(method, path)
    assert response.status_code == status
    assert set(response.json()) == {"error"}
    assert {"code", "message"} <= set(response.json()["error"])
    assert status != 405 or "POST" in response.headers["allow"]


async def test_tools_can_be_narrowed_for_one_run(tmp_path: Path) -> None:
    provider = Scripted([BASH, DONE])
    async with serving(tmp_path, provider) as served:
        events = await served.chat(tools=["read_file"])
    assert events[0]["tools"] == ["read_file"]
    assert [tool.name for tool in provider.requests[0].tools] == ["read_file"]
    assert "tool.started" not in kinds(events)  # layer 2: what was not offered does not run


async def test_the_headers_name_run_and_session(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([DONE])) as served:
        response = await served.client.post("/chat", json={"message": "Hello"})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-run-id"].startswith("run_")
    assert response.headers["x-session-id"].startswith("ses_")
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-accel-buffering"] == "no"


async def test_what_there_is(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        ready = (await served.client.get("/readyz")).json()
        assert (ready["ready"], ready["model"], ready["sandbox"]) == (True, "scripted", "bubblewrap")
        assert (await served.client.get("/livez")).json() == {"live": True}
        tools = (await served.client.get("/tools")).json()["tools"]
        assert {tool["name"] for tool in tools} >= {
            "bash",
            "python",
            "read_file",
            "write_file",
            "edit_file",
            "list_files",
        }
        home: httpx2.Response = await served.client.get("/")
        assert "curl -N localhost:" in home.text
        assert "POST   /chat" in home.text
