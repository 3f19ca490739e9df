"""`tool_choice` on the lanes for clients, with a model that is taught its calls: the server's grammar enforces it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.models.capabilities.abilities import AbilityOverrides
from tests.support.lanes.native_clients import TOOL
from tests.support.models.abilities import models
from tests.support.models.chatting import DONE, chat_with, chunk, says
from tests.support.models.endpoints import opened, running_server
from tests.support.models.gbnf_matcher import takes
from tests.support.models.upstream import Paths, stream, upstream
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
MESSAGES = [{"role": "user", "content": "Go."}]
FUNCTION = {"name": TOOL, "description": "Runs a command.", "parameters": SCHEMA}
# The path, the fields of a request, and how each choice is written: none, any tool, this tool.
LANES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "/v1/chat/completions": (
        {"messages": MESSAGES, "tools": [{"type": "function", "function": FUNCTION}]},
        ["none", "required", {"type": "function", "function": {"name": TOOL}}],
    ),
    "/v1/responses": (
        {"input": MESSAGES, "tools": [{"type": "function", **FUNCTION}]},
        ["none", "required", {"type": "function", "name": TOOL}],
    ),
    "/v1/messages": (
        {"messages": MESSAGES, "max_tokens": 99, "tools": [{"name": TOOL, "input_schema": SCHEMA}]},
        [{"type": "none"}, {"type": "any"}, {"type": "tool", "name": TOOL}],
    ),
}


@pytest.mark.parametrize("path", LANES)
async def test_a_choice_is_enforced_on_each_lane(tmp_path: Path, path: str) -> None:
    fields, choices = LANES[path]
    said = stream(says(CALL), chunk(finish="stop"), DONE)
    paths = Paths({"/v1/models": models(owned_by="llamacpp", max_model_len=8192), "/v1/chat/completions": said})
    async with asyncio.timeout(60), upstream(paths, repeat=True) as server:
        paths.server = server
        stated = AbilityOverrides("tagged")
        async with chat_with(server, overrides=stated) as chat, serving(tmp_path, chat) as served:
            await chat.window()
            answers = [
                (await served.client.post(path, json={"model": "m", **fields, "tool_choice": choice})).text
                for choice in choices
            ]
    grammars = [one.json.get("grammar") for one in server.chats]
    assert grammars[0] is None
    assert [(takes(one, CALL), takes(one, "Hello")) for one in grammars[1:]] == [(True, False)] * 2
    assert [json.loads(answer) and "tool_call>" in answer for answer in answers] == [True, False, False]


async def test_an_endpoint_s_field_comes_before_the_setting(tmp_path: Path) -> None:
    endpoints = {"a": running_server(), "b": running_server(tool_grammar="on")}
    async with opened(tmp_path, endpoints=endpoints, tool_grammar="off") as here:
        assert [one.spec.tool_grammar for one in here.models.endpoints.values()] == ["off", "on"]
        known = [one.default.provider.ability("tool_grammar") for one in here.models.endpoints.values()]
    assert [(one.value, one.source) for one in known] == [(False, "setting"), (None, "unknown")]
