"""Native calls through to the next request: one result per call, under its own id, in order, whatever became of it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.lanes.native_clients import LANES
from tests.support.models.answers import FIXTURES
from tests.support.models.chatting import DONE, chat_with, chunk, says
from tests.support.models.upstream import Act, Upstream, answer, stream, upstream
from tests.support.nightly import at_night
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio

END = stream(says("Done."), chunk(finish="stop"), DONE)
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # OpenAI's rule
# Streams whose calls come to a next round, all but those that are cut or given up.
CALLS = sorted(
    f"{path.parent.name}/{path.name}"
    for path in FIXTURES.glob("*/*call*.sse")
    if path.parent.name != "anthropic" and not re.search("inside|promised|fenced", path.name)
)


@asynccontextmanager
async def model_that(folder: Path, acts: list[Act], **flags: Any) -> AsyncGenerator[tuple[Served, Upstream], None]:
    """A server whose model says these replies, one after the other; `acts` may be filled later."""
    opened: list[Upstream] = []

    async def say(reader: Any, writer: Any) -> None:
        act = acts.pop(0) if opened[0].asked[-1].path.endswith("/chat/completions") else answer("{}", 404)
        await act(reader, writer)

    async with upstream(say, repeat=True) as server, chat_with(server) as chat:
        opened.append(server)
        async with serving(folder, chat, window=32_768, **flags) as served:
            yield served, server


def asked_of(server: Upstream) -> list[dict[str, Any]]:
    return [asked.json for asked in server.asked if asked.path.endswith("/chat/completions")]


def pairs_in(body: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Of each native call its name, its arguments and its result; asserts all that strict servers ask for."""
    pairs, waiting, ids = [], list[dict[str, Any]](), list[str]()
    for message in body["messages"]:
        if message["role"] == "tool":
            call = waiting.pop(0)
            assert message["tool_call_id"] == call["id"] and message["content"]
            pairs.append((call["function"]["name"], call["function"]["arguments"], message["content"]))
            continue
        assert not waiting, "a call without its result"
        waiting = list(message.get("tool_calls", ()))
        for call in waiting:
            ids.append(call["id"])
            assert call["id"] and NAME.fullmatch(call["function"]["name"]), call
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert not waiting and len(ids) == len({*ids}), "a call without its result, or an id that two have"
    return pairs


def call(name: str, arguments: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}} | fields


async def test_each_call_of_a_reply_gets_its_own_result(tmp_path: Path) -> None:
    """A batch of everything that can happen to a call; the server's own ids are all the same."""
    batch = [
        call("no_such_tool", '{"a":1}'),
        call("read_file", '{"path":"there.txt"}'),
        call("bash", '{"command":"rm -rf /tmp/bui'),
        call("read_file", '{"path":"../secret.txt"}'),
        call("", '{"path":"there.txt"}'),
        call("read_file", '{"path":"missing.txt"}'),
        call("read file, please!", "{}"),
        call("read_file", '["there.txt"]'),
        call("read_file", '"{\\"path\\":\\"there.txt\\"}"'),
    ]
    fragments = [one | {"index": place, "id": "same"} for place, one in enumerate(batch)]
    act = stream(chunk({"tool_calls": fragments}), chunk(finish="tool_calls"), DONE)
    async with model_that(tmp_path, [act, END]) as (served, server):
        (tmp_path / "work" / "there.txt").write_text("here it is")
        events = await served.chat("Go.", approval="deny")
    assert events[-1]["type"] == "run.finished" and events[-1]["reason"] == "answered"
    names, _, results = zip(*pairs_in(asked_of(server)[1]), strict=True)
    assert names == (
        *("no_such_tool", "read_file", "bash", "read_file", "unknown", "read_file", "read_file__please_"),
        *("read_file", "read_file"),
    )
    expected = (
        *("no_such_tool", "here it is", "cut off", "outside", "without a name", "missing.txt", "read file, please!"),
        *("a JSON list", "here it is"),
    )
    for result, part in zip(results, expected, strict=True):
        assert part in result, (part, result)
    told = [event["call"] for event in events if event["type"] in ("tool.finished", "tool.rejected")]
    assert len(told) == len(set(told)) == len(batch)


async def test_the_calls_of_every_stream_come_back_with_their_results(tmp_path: Path) -> None:
    acts: list[Act] = []
    async with model_that(tmp_path, acts) as (served, server):
        for name in at_night(CALLS, CALLS[::3]):
            acts[:] = [stream((FIXTURES / name).read_bytes()), *[END] * 3]
            before = len(asked_of(server))
            events = await served.chat("Go.")
            if events[-1]["type"] == "run.finished":
                opened = {event["call"] for event in events if event["type"] in ("tool.delta", "tool.rejected")}
                assert len(pairs_in(asked_of(server)[before + 1])) == len(opened) > 0, name


async def test_a_reply_that_promises_a_call_and_makes_none_is_an_answer(tmp_path: Path) -> None:
    async with model_that(tmp_path, [stream((FIXTURES / "odd/call_promised.sse").read_bytes()), *[END] * 3]) as (
        served,
        _,
    ):
        events = await served.chat("Go.")
    assert [event["type"] for event in events].count("run.finished") == 1
    assert not [event for event in events if event["type"].startswith("tool.")]


AGAIN = '{"command": "echo ran >> ran.txt; cat ran.txt"}'
WAYS = {
    "markup": f'<tool_call>\n{{"name": "bash", "arguments": {AGAIN}}}\n</tool_call>',
    "a fence": f'```tool_call\n{{"name": "bash", "arguments": {AGAIN}}}\n```',
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_that_is_made_natively_and_in_the_text_is_made_once(tmp_path: Path, way: str) -> None:
    """Those that are made twice in the same way are two."""
    twice = [call("bash", AGAIN) | {"index": place} for place in range(2)]
    act = stream(says(f"I will.\n{WAYS[way]}"), chunk({"tool_calls": twice}), chunk(finish="tool_calls"), DONE)
    async with model_that(tmp_path, [act, END]) as (served, server):
        events = await served.chat("Go.", tools=["bash"], approval="auto")
    started = [event for event in events if event["type"] == "tool.started"]
    assert [event["dialect"] for event in started] == ["native"] * 2
    [rejected] = [event for event in events if event["type"] == "tool.rejected"]
    assert "it is made once" in rejected["reason"] and rejected["call"] not in [event["call"] for event in started]
    assert [result.splitlines().count("ran") for _, _, result in pairs_in(asked_of(server)[1])] == [1, 2]
    assert asked_of(server)[1]["messages"][-1]["role"] == "tool"


PYTHON = "{'command': 'echo ran', 'background': False,} # please"
WRITTEN = {"command": "echo ran", "background": False}


async def test_arguments_that_are_no_json_are_decided_on_shown_and_run_as_they_are_read(tmp_path: Path) -> None:
    """As they would be in JSON, which the same call is made in before."""
    acts = [
        stream(chunk({"tool_calls": [call("bash", raw, index=0)]}), chunk(finish="tool_calls"), DONE)
        for raw in (json.dumps(WRITTEN), PYTHON)
    ]
    async with model_that(tmp_path, [acts[0], END, acts[1], END]) as (served, server):
        before = await served.chat("Go.", tools=["bash"], approval="auto")
        events = await served.chat("Go.", tools=["bash"], approval="auto")
        audit = (await served.client.get("/audit")).json()["audit"]
    by_type = {event["type"]: event for event in events}
    assert by_type["tool.started"]["arguments"] == WRITTEN and by_type["tool.finished"]["ok"]
    assert "".join(event["text"] for event in events if event["type"] == "tool.delta") == PYTHON
    [notice] = [event for event in events if event["type"] == "notice" and event["code"] == "repaired"]
    assert "bash" in notice["message"] and "not valid JSON" in notice["message"]
    assert not [event for event in before if event["type"] == "notice" and event["code"] == "repaired"]
    made = [row["fingerprint"] for row in audit if row["action"] == "bash" and row["fingerprint"]]
    assert len(made) == 2 and made[0] == made[1]
    [(_, arguments, result)] = pairs_in(asked_of(server)[3])
    assert json.loads(arguments) == WRITTEN and "ran" in result


@pytest.mark.parametrize("lane", LANES)
async def test_a_relay_hands_over_json_whatever_the_model_wrote(tmp_path: Path, lane: str) -> None:
    fragments = [call("bash", PYTHON, index=0), call("bash", '{command: "pwd"}', index=1)]
    act = stream(chunk({"tool_calls": fragments}), chunk(finish="tool_calls"), DONE)
    async with model_that(tmp_path, [act]) as (served, _):
        answered = await served.client.post(lane, json=LANES[lane].asking("Go."))
        assert answered.status_code == 200, answered.text
    assert [made.arguments for made in LANES[lane].calls(LANES[lane].read(answered.text))] == [
        WRITTEN,
        {"command": "pwd"},
    ]
