"""Anthropic's Messages through the real server: relay and agent, streams, errors, counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.core.provider import CallForm, Finished, ProviderFailed, TokenUsage
from app.models.scripted import Line, Raise, Scripted
from parsing import Call, Thought
from tests.support.access.people import bearer
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio

Fields = dict[str, Any]
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
HEADERS = {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219"}


async def sent(served: Served, messages: Sequence[Fields] = (), path: str = "/v1/messages", **more: Any) -> Any:
    asked = list(messages) or [{"role": "user", "content": "Hello"}]
    body = {"model": "scripted", "max_tokens": 100, "messages": asked, **more}
    return await served.client.post(path, json=body, headers=HEADERS)


def events_in(text: str) -> list[Fields]:
    found = []
    for block in text.split("\n\n")[:-1]:
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        if lines:
            event, data = lines
            found.append(json.loads(data.removeprefix("data: ")))
            assert event == f"event: {found[-1]['type']}"
    return found


async def test_a_call_in_text_arrives_as_tool_use_and_its_result_goes_back(tmp_path: Path) -> None:
    replies: list[list[Line]] = [
        [Thought("Hm."), "I look.\n", HERMES, TokenUsage(50, 20, cached=10), Finished("stop")],
        ["Sunny."],
    ]
    model = Scripted(replies, call_form=CallForm.TAGGED)
    async with serving(tmp_path, model) as served:
        first = (await sent(served, tools=[WEATHER])).json()
        thought, text, call = first["content"]
        assert (text["text"], call["name"], call["input"]) == ("I look.", "get_weather", {"city": "Rome"})
        assert (first["stop_reason"], first["usage"]["input_tokens"]) == ("tool_use", 40)
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "Sunny"}
        history = [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": [result]},
        ]
        second = (await sent(served, history, tools=[WEATHER])).json()
    assert [block["text"] for block in second["content"]] == ["Sunny."]
    _, asked, answered = model.requests[1].messages
    assert (asked.reasoning, [one.id for one in asked.calls]) == ("Hm.", [call["id"]])
    assert (answered.call, answered.name, answered.text) == (call["id"], "get_weather", "Sunny")
    assert thought["signature"]


async def test_a_stream_of_claude_code(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([["I look.", HERMES]], call_form=CallForm.TAGGED)) as served:
        response = await sent(
            served,
            [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}],
                },
                {"role": "system", "content": "Be brief."},
            ],
            path="/v1/messages?beta=true",
            stream=True,
            tools=[WEATHER | {"defer_loading": True}],
            thinking={"type": "adaptive"},
            output_config={"effort": "high"},
            context_management={"edits": []},
            metadata={"user_id": "u"},
        )
    assert response.headers["content-type"].startswith("text/event-stream")
    types = [event["type"] for event in events_in(response.text)]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [one for at, one in enumerate(types) if types[at - 1 : at] != [one]] == [
        *("message_start", "ping", *block, *block, "message_delta", "message_stop")
    ]


async def test_the_agent_hides_its_own_tools(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["I look.\n```bash\necho hi\n```", "Done."])) as served:
        answer = (await sent(served, model="dragoman/agent")).json()
    assert {block["type"] for block in answer["content"]} == {"text"}
    assert answer["content"][-1]["text"] == "Done."
    assert (answer["model"], answer["stop_reason"]) == ("dragoman/agent", "end_turn")


async def test_a_prompt_that_is_too_long_is_worded_as_claude_code_knows_it(tmp_path: Path) -> None:
    failure = ProviderFailed("model_context", "400: 9000 > 8192.", retryable=False)
    async with serving(tmp_path, Scripted([[Raise(failure)], [Raise(failure)]])) as served:
        whole = await sent(served)
        streamed = events_in((await sent(served, stream=True)).text)
    assert (whole.status_code, whole.json()["error"]["type"]) == (400, "invalid_request_error")
    assert whole.json()["error"]["message"].startswith("prompt is too long: ")
    assert streamed[-1] == whole.json()


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"model": "nothing"}, 404, "not_found_error"),
        ({"messages": [{"role": "tool"}]}, 400, "invalid_request_error"),
        ({"max_tokens": "many"}, 400, "invalid_request_error"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_errors_have_the_form_and_types_of_the_api(
    tmp_path: Path, path: str, body: Fields, status: int, kind: str
) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        response = await sent(served, path=path, **body)
    assert response.status_code == status
    assert response.json()["type"] == "error"
    assert response.json()["error"].keys() == {"type", "message"}
    assert response.json()["error"]["type"] == kind


@pytest.mark.parametrize("model", ["scripted", "dragoman/scripted", "dragoman/agent"])
async def test_tokens_are_counted_although_the_server_does_not_count(tmp_path: Path, model: str) -> None:
    async with serving(tmp_path, Scripted([], call_form=CallForm.NATIVE)) as served:

        async def count(**more: Any) -> int:
            response = await sent(served, path="/v1/messages/count_tokens?beta=true", **{"model": model} | more)
            assert response.status_code == 200, response.text
            assert response.json().keys() == {"input_tokens"}
            tokens: int = response.json()["input_tokens"]
            return tokens

        bare = await count()
        assert 2 <= bare < 20
        assert await count(system="x" * 400) > bare + 95
        assert await count(tools=[WEATHER]) > bare + 30
        assert await count(tools=[WEATHER, {"type": "web_search_20260209", "name": "web_search"}]) == await count(
            tools=[WEATHER]
        )


async def test_tools_that_are_taught_count(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([], call_form=CallForm.TAGGED)) as served:
        path = "/v1/messages/count_tokens"
        with_tools = (await sent(served, path=path, tools=[WEATHER])).json()
        bare = (await sent(served, path=path)).json()
    assert with_tools["input_tokens"] > bare["input_tokens"] + 50


async def test_claude_code_finds_the_server_without_a_token(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        await bearer(served, "ada")
        assert (await served.client.head("/api/hello")).status_code == 204
        assert (await served.client.get("/api/hello")).status_code == 204
        refused = await sent(served)
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")


async def test_an_agent_runs_its_own_tools_hands_over_the_clients_and_goes_on(tmp_path: Path) -> None:
    replies: list[list[Line]] = [
        [
            Call(0, "list_files", {}, "native"),
            Call(1, "get_weather", {"city": "Rome"}, "native"),
            Finished("tool_calls"),
        ],
        ["Sunny."],
    ]
    model = Scripted(replies, call_form=CallForm.NATIVE)
    async with serving(tmp_path, model) as served:
        asked = {"role": "user", "content": "Hello"}
        first = await sent(served, [asked], model="dragoman/agent", tools=[WEATHER])
        [call] = first.json()["content"]
        assert (call["type"], call["name"], first.json()["stop_reason"]) == ("tool_use", "get_weather", "tool_use")
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "Sunny"}
        history: list[Fields] = [
            asked,
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
        second = await sent(served, history, model="dragoman/agent", tools=[WEATHER])
    assert [block["text"] for block in second.json()["content"]] == ["Sunny."]
    assert second.headers["x-session-id"] == first.headers["x-session-id"]
    roles = [message.role for message in model.requests[1].messages]
    assert roles == ["user", "assistant", "tool", "tool"]
    assert model.requests[1].messages[-1].text == "Sunny"


async def test_the_clients_tool_wins_over_one_of_the_same_name(tmp_path: Path) -> None:
    own_name = WEATHER | {"name": "bash"}
    model = Scripted([[Call(0, "bash", {"city": "Rome"}, "native"), Finished("tool_calls")]], call_form=CallForm.NATIVE)
    async with serving(tmp_path, model) as served:
        answer = (await sent(served, model="dragoman/agent", tools=[own_name])).json()
    assert [(block["type"], block["name"]) for block in answer["content"]] == [("tool_use", "bash")]


async def test_own_tools_are_shown_to_a_client_that_names_the_server(tmp_path: Path) -> None:
    servers = [{"type": "url", "name": "dragoman", "url": "http://localhost:8724"}]
    async with serving(tmp_path, Scripted(["```bash\necho hi\n```", "Done."])) as served:
        whole = (await sent(served, model="dragoman/agent", mcp_servers=servers)).json()
    kinds = [block["type"] for block in whole["content"]]
    assert kinds == ["text", "mcp_tool_use", "mcp_tool_result", "text"]
    _, call, result, _ = whole["content"]
    assert (call["name"], call["server_name"], result["tool_use_id"]) == ("bash", "dragoman", call["id"])
    assert result["content"][0]["text"].startswith("hi")
