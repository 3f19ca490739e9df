"""A conversation of three turns with the agent, as clients of each format hold it: all in one session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec import Struct

from app.core.provider import Finished
from app.models.scripted import Line, Reply, Scripted
from parsing import Call
from tests.support.lanes.small_lane import Plain, serving_plain

pytestmark = pytest.mark.anyio

Item = dict[str, Any]
MODEL = "dragoman/agent"
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
LOOK_UP: list[Line] = [Call(0, "look_up", {"q": "x"}, "native"), Finished("tool_calls")]
BOTH = "I will.\n```bash\necho own\n```\n" + '<tool_call>{"name": "look_up", "arguments": {"q": "x"}}</tool_call>'
OWN = "I will run it.\n\n```bash\necho own\n```\n"


class Format(Struct):
    """A client's format: how it asks, what of an answer it keeps, and how it brings a result."""

    path: str
    field: str
    tool: Item
    kept: Callable[[Item], list[Item]]
    call_of: Callable[[list[Item]], str]
    result: Callable[[str], Item]
    more: Item


def chat_kept(answer: Item) -> list[Item]:
    return [answer["choices"][0]["message"]]


def messages_kept(answer: Item) -> list[Item]:
    return [{"role": "assistant", "content": answer["content"]}]


FORMATS = {
    "chat": Format(
        "/v1/chat/completions",
        "messages",
        {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}},
        chat_kept,
        lambda kept: kept[-1]["tool_calls"][0]["id"],
        lambda call: {"role": "tool", "tool_call_id": call, "content": "5"},
        {},
    ),
    "messages": Format(
        "/v1/messages",
        "messages",
        {"name": "look_up", "input_schema": SCHEMA},
        messages_kept,
        lambda kept: next(one["id"] for one in kept[-1]["content"] if one["type"] == "tool_use"),
        lambda call: {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "5"}]},
        {"max_tokens": 100},
    ),
    "responses": Format(
        "/v1/responses",
        "input",
        {"type": "function", "name": "look_up", "parameters": SCHEMA},
        lambda answer: answer["output"],
        lambda kept: next(one["call_id"] for one in kept if one["type"] == "function_call"),
        lambda call: {"type": "function_call_output", "call_id": call, "output": "5"},
        {"store": False},
    ),
}


async def sent(served: Plain, one: Format, conversation: list[Item]) -> tuple[list[Item], str]:
    """What the client keeps of the answer, and its session."""
    body = {"model": MODEL, one.field: conversation, "tools": [one.tool]} | one.more
    response: httpx2.Response = await served.client.post(one.path, json=body)
    assert response.status_code == 200, response.text
    return one.kept(response.json()), response.headers["x-session-id"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("first", [LOOK_UP, BOTH], ids=["a call of the client's tool", "own and client's calls"])
async def test_a_call_its_result_and_another_turn(tmp_path: Path, name: str, first: Reply) -> None:
    one, model = FORMATS[name], Scripted([first, "It is 5.", "More."])
    conversation: list[Item] = [{"role": "user", "content": "How much?"}]
    async with serving_plain(tmp_path, model) as served:
        kept, session = await sent(served, one, conversation)
        conversation += [*kept, one.result(one.call_of(kept))]
        kept, second = await sent(served, one, conversation)
        conversation += [*kept, {"role": "user", "content": "And now?"}]
        _, third = await sent(served, one, conversation)
    assert session == second == third
    results = [message.text for message in model.requests[-1].messages if message.role == "tool"]
    assert len(results) == (1 if first is LOOK_UP else 2) and "5" in results[-1]
    assert model.requests[-1].messages[-1].text == "And now?"


@pytest.mark.parametrize("name", FORMATS)
async def test_a_turn_in_which_the_agent_used_its_own_tool(tmp_path: Path, name: str) -> None:
    one, model = FORMATS[name], Scripted([OWN, "It printed own.", "Two.", "Three."])
    conversation: list[Item] = [{"role": "user", "content": "Run it"}]
    sessions = list[str]()
    async with serving_plain(tmp_path, model) as served:
        for text in ("Again?", "And again?"):
            kept, session = await sent(served, one, conversation)
            sessions.append(session)
            conversation += [*kept, {"role": "user", "content": text}]
        sessions.append((await sent(served, one, conversation))[1])
    assert len(set(sessions)) == 1
    roles = [message.role for message in model.requests[-1].messages if message.role != "system"]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant", "user"]
