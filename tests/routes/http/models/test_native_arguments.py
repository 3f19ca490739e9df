"""Native arguments that are almost JSON: what they can only mean is decided on, audited, shown, run and sent back."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.core.provider import Provider
from tests.support.lanes.native_clients import LANES, MODEL, TOOL
from tests.support.models.chatting import DONE, chat_with, chunk, says
from tests.support.models.messages_streams import claude_at, end, event, start, stop
from tests.support.models.messages_streams import says as says_message
from tests.support.models.upstream import Act, Upstream, answer, stream, upstream
from tests.support.nightly import at_night
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio

ECHO: dict[str, Any] = {"command": "echo ran"}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "trailing commas": ('{"command": "echo ran",}', ECHO),
    "bare names": ('{command: "echo ran"}', ECHO),
    "single quotes": ("{'command': 'echo ran'}", ECHO),
    "a word of Python": ('{"command": "echo ran", "background": False}', ECHO | {"background": False}),
    "comments": ('{"command": "echo ran" // it\'s {one}\n, /* and "two" */ # three\n}', ECHO),
    "a raw line end": ('{"command": "echo ran\necho B"}', {"command": "echo ran\necho B"}),
    "a doubled string": (json.dumps(json.dumps(ECHO)), ECHO),
    "a doubled string that is no JSON": (json.dumps("{'command': 'echo ran',}"), ECHO),
    "all of it": (
        "{command: 'echo ran\necho B', 'background': False, /* no */}",
        {"command": "echo ran\necho B", "background": False},
    ),
}
UNREADABLE = {
    "a text without quotes": '{"command": echo ran}',
    "two objects": '{"command": "echo ran"} {"command": "echo B"}',
    "no end": "{'command': 'echo ran'",
    "a list": "['echo ran']",
    "quotes with two readings": '{"command": "a", "b": "c", "d"}',
    "not a number": "{'command': 'echo ran', 'time_limit_s': NaN}",
}


@dataclass(frozen=True, slots=True)
class Wire:
    """A format of a model's server: `call` is a reply with these arguments, `arguments` those in a request, as text,
    `result` the one in it."""

    provider: Callable[[Upstream], AbstractAsyncContextManager[Provider]]
    call: Callable[[str], Act]
    text: Act
    arguments: Callable[[dict[str, Any]], str]
    result: Callable[[dict[str, Any]], str]


def chat_streamed(raw: str) -> Act:
    head = {"index": 0, "id": "call_1", "type": "function", "function": {"name": TOOL, "arguments": ""}}
    parts = [chunk({"tool_calls": [{"index": 0, "function": {"arguments": one}}]}) for one in raw]
    return stream(chunk({"tool_calls": [head]}), *parts, chunk(finish="tool_calls"), DONE)


def chat_whole(raw: str) -> Act:
    call = {"id": "call_1", "type": "function", "function": {"name": TOOL, "arguments": raw}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return answer(json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}))


def chat_arguments(body: dict[str, Any]) -> str:
    [made] = [call for message in body["messages"] for call in message.get("tool_calls", ())]
    return str(made["function"]["arguments"])


def chat_result(body: dict[str, Any]) -> str:
    [result] = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    return str(result)


def messages_streamed(raw: str) -> Act:
    begun = event("content_block_start", index=0, content_block={"type": "tool_use", "id": "toolu_1", "name": TOOL})
    parts = [
        event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": one}) for one in raw
    ]
    return stream(start(), begun, *parts, stop(0), end("tool_use"))


def messages_whole(raw: str) -> Act:
    block = {"type": "tool_use", "id": "toolu_1", "name": TOOL, "input": raw}
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"type": "message", "role": "assistant", "content": [block], "stop_reason": "tool_use", "usage": usage}
    return answer(json.dumps(message))


def blocks(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [block for message in body["messages"] for block in message["content"] if block["type"] == kind]


def messages_arguments(body: dict[str, Any]) -> str:
    [made] = blocks(body, "tool_use")
    return json.dumps(made["input"])


def messages_result(body: dict[str, Any]) -> str:
    [result] = blocks(body, "tool_result")
    return str(result["content"])


def messages_at(server: Upstream) -> AbstractAsyncContextManager[Provider]:
    return claude_at(server, MODEL)


CHAT_END = stream(says("Done."), chunk(finish="stop"), DONE)
MESSAGES_END = stream(start(), says_message("Done."), end("end_turn"))
WIRES = {
    "chat, streamed": Wire(chat_with, chat_streamed, CHAT_END, chat_arguments, chat_result),
    "chat, whole": Wire(chat_with, chat_whole, CHAT_END, chat_arguments, chat_result),
    "messages, streamed": Wire(messages_at, messages_streamed, MESSAGES_END, messages_arguments, messages_result),
    "messages, whole": Wire(messages_at, messages_whole, MESSAGES_END, messages_arguments, messages_result),
}


@asynccontextmanager
async def model_that(folder: Path, wire: str, acts: list[Act]) -> AsyncGenerator[tuple[Served, Upstream], None]:
    async def say(reader: Any, writer: Any) -> None:
        await acts.pop(0)(reader, writer)

    async with upstream(say, repeat=True, chats=True) as server, WIRES[wire].provider(server) as model:
        async with serving(folder, model, window=32_768) as served:
            yield served, server


def noted(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["message"] for event in events if event["type"] == "notice" and event["code"] == "repaired"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("row", ROWS)
async def test_the_agent_runs_what_they_can_only_mean(tmp_path: Path, wire: str, row: str) -> None:
    """As the same call in JSON, which is made in another session before."""
    (raw, arguments), made = ROWS[row], WIRES[wire]
    acts = [made.call(json.dumps(arguments)), made.text, made.call(raw), made.text]
    async with model_that(tmp_path, wire, acts) as (served, server):
        before = await served.chat("Go.", tools=[TOOL], approval="auto")
        events = await served.chat("Go.", tools=[TOOL], approval="auto")
        audit = (await served.client.get("/audit")).json()["audit"]
        shown = (await served.client.get(f"/sessions/{events[0]['session']}")).json()["messages"]
    started = {event["type"]: event for event in events}["tool.started"]
    finished = {event["type"]: event for event in events}["tool.finished"]
    assert started["arguments"] == arguments and finished["ok"] and "ran" in finished["text"]
    assert not noted(before)
    [notice] = noted(events)
    assert TOOL in notice
    first, second = (one["fingerprint"] for one in audit if one["action"] == TOOL and one["fingerprint"])
    assert first == second, "what is decided on and audited"
    assert [call["arguments"] for message in shown for call in message.get("calls", ())] == [arguments]
    assert json.loads(made.arguments(server.asked[3].json)) == arguments
    assert "ran" in made.result(server.asked[3].json)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("row", UNREADABLE)
async def test_the_agent_teaches_what_has_no_single_reading(tmp_path: Path, wire: str, row: str) -> None:
    made = WIRES[wire]
    async with model_that(tmp_path, wire, [made.call(UNREADABLE[row]), made.text]) as (served, server):
        events = await served.chat("Go.", tools=[TOOL], approval="auto")
    assert not [event for event in events if event["type"] == "tool.started"] and not noted(events)
    [rejected] = [event for event in events if event["type"] == "tool.rejected"]
    for told in (rejected["reason"], made.result(server.asked[1].json)):
        assert f"Call {TOOL} again with one whole JSON object" in told


KEPT = "/v1/responses"  # only this lane's runs are there afterwards


def asking(lane: str) -> dict[str, Any]:
    return LANES[lane].asking("Go.") | ({"store": True} if lane == KEPT else {})


PAIRS = [(wire, lane) for wire in WIRES for lane in LANES]
USUAL = [
    ("chat, streamed", "/v1/chat/completions"),
    ("chat, whole", "/v1/responses"),
    ("messages, streamed", "/v1/messages"),
    ("messages, whole", "/ag-ui"),
]


@pytest.mark.parametrize(("wire", "lane"), at_night(PAIRS, USUAL))
@pytest.mark.parametrize("row", ROWS)
async def test_a_relay_hands_them_over_as_json(tmp_path: Path, wire: str, lane: str, row: str) -> None:
    (raw, arguments), made, client = ROWS[row], WIRES[wire], LANES[lane]
    async with model_that(tmp_path, wire, [made.call(raw), made.text]) as (served, server):
        answered = await served.client.post(lane, json=asking(lane))
        assert answered.status_code == 200, answered.text
        seen = client.read(answered.text)
        events = await served.events(answered.headers["x-run-id"]) if lane == KEPT else []
        await served.client.post(lane, json=client.answering(client.asking("Go."), seen))
    assert [call.arguments for call in client.calls(seen)] == [arguments]
    assert len(noted(events)) == (lane == KEPT)
    assert json.loads(made.arguments(server.asked[1].json)) == arguments


@pytest.mark.parametrize(("wire", "lane"), at_night(PAIRS, USUAL))
@pytest.mark.parametrize("row", UNREADABLE)
async def test_a_relay_hands_nothing_over_that_has_no_single_reading(
    tmp_path: Path, wire: str, lane: str, row: str
) -> None:
    """The client's tool takes a call without arguments, so that such a call would be run."""
    made, client = WIRES[wire], LANES[lane]
    async with model_that(tmp_path, wire, [made.call(UNREADABLE[row])]) as (served, _):
        answered = await served.client.post(lane, json=asking(lane))
        events = await served.events(answered.headers["x-run-id"]) if lane == KEPT else []
    assert answered.status_code == 200 and client.calls(client.read(answered.text)) == []
    told = [event["message"] for event in events if event.get("code") == "unreadable_call"]
    assert len(told) == (lane == KEPT) and not noted(events)
