"""What is learned of the models of a server that speaks the Messages API, and which servers do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.endpoints.spec import EndpointSpec
from app.provider import Ability
from app.providers import kind_of
from app.providers.anthropic.provider import WINDOW
from app.providers.connections import AnthropicConnection, Manner
from app.providers.http import base_url_of
from tests.chatting import pieces_of
from tests.messages_streams import KEY, WHOLE, claude_at
from tests.upstream import Paths, answer, upstream

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
        connection = AnthropicConnection(EndpointSpec(url=server.base_url), KEY, Manner())
        assert await connection.models() == ["claude-new", "claude-old"]
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
    assert kind_of(url, format).name == kind
    assert base_url_of(f"{url}/messages") == url
