"""What is learned of the models of a server that speaks the Messages API, and which servers do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.core.endpoint_spec import EndpointSpec
from app.core.provider import Ability
from app.models.http.client import base_url_of
from app.models.providers import provider_kind
from app.models.server_connection import ConnectionOptions, HTTPConnection
from app.models.wire.anthropic.provider import WINDOW, AnthropicMessages
from tests.support.models.chatting import failure_of, pieces_of
from tests.support.models.messages_streams import HI, KEY, WHOLE, claude_at
from tests.support.models.upstream import Paths, answer, upstream

pytestmark = pytest.mark.anyio

LISTED = {
    "data": [
        {
            "type": "model",
            "id": "claude-new",
            "max_input_tokens": 1_000_000,
            "max_tokens": 128_000,
            "capabilities": {"image_input": {"supported": True}, "pdf_input": {"supported": False}},
        },
        {"type": "model", "id": "claude-old"},
    ],
    "has_more": False,
}


async def test_what_the_server_says_of_its_models_is_learned() -> None:
    paths = Paths({"/v1/models?limit=1000": answer(json.dumps(LISTED)), "/v1/messages": WHOLE})
    async with upstream(paths, repeat=True) as server, claude_at(server, "claude-new") as chat:
        paths.server = server
        assert chat.ability("window").value is None and chat.ability("images").source == "name"
        assert await chat.window() == 1_000_000
        assert [chat.ability(name) for name in ("images", "pdf")] == [
            Ability("images", True, "server", "/v1/models"),
            Ability("pdf", False, "server", "/v1/models"),
        ]
        await pieces_of(chat)
        assert server.asked[-1].json["max_tokens"] == 64_000
        assert await chat.count_tokens(["a"]) is None
    assert {asked.headers["x-api-key"] for asked in server.asked} == {KEY}


@pytest.mark.parametrize(("model", "window"), [("claude-old", WINDOW), ("claude-gone", WINDOW), ("qwen", None)])
async def test_a_window_that_nobody_tells_is_told_by_the_name(model: str, window: int | None) -> None:
    paths = Paths({"/v1/models?limit=1000": answer(json.dumps(LISTED))})
    async with upstream(paths, repeat=True) as server, claude_at(server, model) as chat:
        paths.server = server
        assert await chat.window() == window


async def test_the_first_model_is_asked_for_by_name_and_all_are_listed() -> None:
    paths = Paths({path: answer(json.dumps(LISTED)) for path in ("/v1/models", "/v1/models?limit=1000")})
    paths.acts = {**paths.acts, "/v1/messages": WHOLE}
    async with upstream(paths, repeat=True) as server, claude_at(server, "auto") as chat:
        paths.server = server
        await pieces_of(chat)
        assert chat.model == "claude-new" and server.asked[-1].json["model"] == "claude-new"
        connection = HTTPConnection(AnthropicMessages, EndpointSpec(url=server.base_url), KEY, ConnectionOptions())
        assert await connection.models(KEY) == ["claude-new", "claude-old"]
        assert connection.provider("claude-old").model == "claude-old"
        await connection.close()
    assert {asked.headers["x-api-key"] for asked in server.asked} == {KEY}


@pytest.mark.parametrize(
    ("url", "format", "kind"),
    [
        ("https://api.anthropic.com/v1", "auto", "anthropic"),
        ("https://api.anthropic.com/v1", "openai", "openai-compatible"),
        ("https://gateway.example.com/v1", "auto", "openai-compatible"),
        ("https://gateway.example.com/v1", "anthropic", "anthropic"),
    ],
)
def test_which_servers_are_asked_in_this_format(url: str, format: Any, kind: str) -> None:
    assert provider_kind(url, format).name == kind
    assert base_url_of(f"{url}/messages") == url


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease one", [32_000, 10_000]),
        ("input length and `max_tokens` exceed context limit: 199999 + 32000 > 200000, decrease one", [32_000]),
        ("prompt is too long: 210000 tokens > 200000 maximum", [32_000]),
        (f"{'9' * 5000} + 1 > {'9' * 400}", [32_000]),
    ],
)
async def test_an_answer_gets_the_room_that_the_prompt_leaves(said: str, sent: list[int]) -> None:
    refused = answer(json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": said}}), 400)
    async with upstream(refused, *[WHOLE] * (len(sent) - 1)) as server, claude_at(server) as chat:
        if len(sent) > 1:
            assert await pieces_of(chat) == HI
        else:
            assert (await failure_of(chat))[1].status == 400
    assert [asked.json["max_tokens"] for asked in server.asked] == sent


async def test_the_longest_answer_that_a_refusal_names_is_remembered() -> None:
    said = "max_tokens: 32000 > 4096, which is the maximum allowed number of output tokens for claude-3-haiku"
    refused = answer(json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": said}}), 400)
    async with upstream(refused, WHOLE, WHOLE) as server, claude_at(server) as chat:
        for _ in range(2):
            assert await pieces_of(chat) == HI
    assert [asked.json["max_tokens"] for asked in server.asked] == [32_000, 4096, 4096]


async def test_a_small_model_is_not_asked_for_more_than_a_quarter_of_its_window() -> None:
    paths = Paths(
        {"/v1/models?limit=1000": answer('{"data":[{"id":"qwen","max_model_len":4096}]}'), "/v1/messages": WHOLE}
    )
    async with upstream(paths, repeat=True) as server, claude_at(server, "qwen") as chat:
        paths.server = server
        assert await chat.window() == 4096
        await pieces_of(chat)
    assert server.asked[-1].json["max_tokens"] == 1024
