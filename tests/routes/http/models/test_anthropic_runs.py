"""Runs with a model of the Messages API, over HTTP: tools, thoughts in the next round and the next turn, price."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.models.messages_rules import broken_rules
from tests.support.models.messages_streams import end, event, says, start, stop
from tests.support.models.upstream import Upstream, answer, stream, upstream
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
KEY = "sk-ant-canary-0815"
PRICE = "{input = 1.0, output = 10.0, cached = 0.1, cache_written = 2.0}"


def thinks(text: str, signature: str) -> str:
    began = event("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""})
    thought = event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": text})
    signed = event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": signature})
    return began + thought + signed + stop(0)


def calls(index: int, id: str, name: str, arguments: dict[str, Any]) -> str:
    began = event(
        "content_block_start", index=index, content_block={"type": "tool_use", "id": id, "name": name, "input": {}}
    )
    written = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    return began + event("content_block_delta", index=index, delta=written) + stop(index)


USAGE = {
    "input_tokens": 1000,
    "cache_read_input_tokens": 10_000,
    "cache_creation_input_tokens": 100,
    "output_tokens": 1,
}
BEGUN = event("message_start", message={"role": "assistant", "usage": USAGE})
LOOKS = stream(
    BEGUN,
    thinks("I should look.", "c2lnbmVkLTE="),
    says("I look.", 1),
    calls(2, "toolu_01", "list_files", {"path": "."}) + calls(3, "toolu_02", "list_files", {"path": "nowhere"}),
    end("tool_use", 50),
)
ANSWERS = stream(start(), thinks("", "c2lnbmVkLTI="), says("Two files.", 1), end("end_turn", 5))
WELCOME = stream(start(), says("You are welcome."), end("end_turn", 5))


def configured(folder: Path, server: Upstream) -> None:
    (folder / "key").write_text(KEY)
    (folder / "dragoman.toml").write_text(
        f'[endpoints.claude]\nurl = "{server.base_url}"\nformat = "anthropic"\nmodel = "claude-m"\n'
        f'key_file = ["{folder / "key"}"]\n[prices]\n"claude/*" = {PRICE}\n'
    )


async def test_a_whole_conversation(tmp_path: Path) -> None:
    async with upstream(LOOKS, ANSWERS, WELCOME, chats=True) as server:
        configured(tmp_path, server)
        async with serving(tmp_path, None) as served:
            events = await served.chat("List the files.")
            session = events[0]["session"]
            events += await served.chat("Thanks.", session=session)
            stored = (await served.client.get(f"/sessions/{session}")).text
    first, second, third = (asked.json for asked in server.asked)
    assert [broken_rules(body) for body in (first, second, third)] == [[], [], []]
    thought = [{"type": "thinking", "thinking": "I should look.", "signature": "c2lnbmVkLTE="}]
    assert second["messages"][1]["content"][:1] == third["messages"][1]["content"][:1] == thought
    results = [block["tool_use_id"] for block in second["messages"][2]["content"]]
    assert results == ["toolu_01", "toolu_02"]
    assert third["messages"][3]["content"][0] == {"type": "thinking", "thinking": "", "signature": "c2lnbmVkLTI="}
    for earlier, later in ((first, second), (second, third)):
        assert unmarked(later["messages"])[: len(earlier["messages"])] == unmarked(earlier["messages"])
    told = [event["text"] for event in events if event["type"] == "run.finished"]
    assert told == ["Two files.", "You are welcome."]
    assert KEY not in json.dumps(events) + stored and "c2lnbmVk" not in json.dumps(events) + stored


def unmarked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the marks for the cache, which move on."""
    plain = [[block | {"cache_control": None} for block in message["content"]] for message in messages]
    return [message | {"content": content} for message, content in zip(messages, plain, strict=True)]


async def test_what_it_costs_is_what_was_read_kept_and_written(tmp_path: Path) -> None:
    async with upstream(LOOKS, ANSWERS, chats=True) as server:
        configured(tmp_path, server)
        async with serving(tmp_path, None) as served:
            events = await served.chat("List the files.")
    (usage, _) = (event for event in events if event["type"] == "usage")
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["measured"]) == (11_100, 50, True)
    assert usage["cached_tokens"] == 10_000
    assert usage["cost"] == pytest.approx((1000 * 1 + 10_000 * 0.1 + 100 * 2 + 50 * 10) / 1e6)


OVERLOADED = answer('{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', 529)


async def test_an_overloaded_server_is_asked_again(tmp_path: Path) -> None:
    async with upstream(OVERLOADED, ANSWERS, chats=True) as server:
        configured(tmp_path, server)
        async with serving(tmp_path, None) as served:
            events = await served.chat("List the files.")
    assert "retry" in [event.get("code") for event in events]
    assert events[-1]["text"] == "Two files."
