"""Relayed requests at a real llama.cpp server, with a template as strict as templates are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from app.core.messages import AskedCall, Message
from app.core.provider import CallForm, Finished, ModelRequest, Piece, ProviderNotice, TextChunk, TokenUsage
from app.models.http.client import model_client
from app.models.wire.openai.provider import OpenAIChat
from app.models.wire.parameters import ENFORCED, FORMAT
from app.models.wire.structured_output import json_of
from tests.support.models.chatting import BASH
from tests.support.models.real_models import LIMIT_S, LlamaServer, Served, need_embedded, pieces_of
from tests.support.models.templates import STRICT, USER_BEGINS

pytestmark = pytest.mark.anyio
COMMAND = {"type": "object", "properties": {"command": {"enum": ["ls", "pwd"]}}, "required": ["command"]}
TOOLS = [replace(BASH, parameters=COMMAND), replace(BASH, name="other", parameters=COMMAND)]
LS = AskedCall("call_1", "bash", {"command": "ls"}, "native")
HISTORY = [
    Message("system", "Be brief."),
    Message("system", "Be kind."),
    Message("user", "Show the files."),
    Message("user", "Now."),
    Message("assistant", "I look."),
    Message("assistant", "", (LS, replace(LS, id="call_2"))),
    Message("tool", "guide.md", call="call_1"),
    Message("system", "It is late."),
    Message("user", ""),
    Message("tool", "a result without a call", call="gone"),
]
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server() -> Iterator[LlamaServer]:
    need_embedded()
    with LlamaServer(Served(template=STRICT, context=2048)) as running:
        yield running


@asynccontextmanager
async def chat_with(server: LlamaServer) -> AsyncGenerator[OpenAIChat, None]:
    """The whole test is bounded by it."""
    async with asyncio.timeout(LIMIT_S), model_client(server.base_url) as client:
        chat = OpenAIChat(client, server.base_url, server.served.name)
        await chat.window()  # which finds out what the server is
        yield chat


async def answer_of(server: LlamaServer, history: list[Message], tools: Any = (), **parameters: Any) -> list[Piece]:
    request = ModelRequest(history, tools, verbatim=True, parameters={"max_tokens": 12, "temperature": 0} | parameters)
    async with chat_with(server) as chat:
        assert chat.call_form is CallForm.NATIVE
        return await pieces_of(chat, request)


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextChunk))


async def test_a_system_message_in_the_middle_and_all_that_clients_do_is_taken(server: LlamaServer) -> None:
    pieces = await answer_of(server, HISTORY, TOOLS, seed=1, top_k=1, of_no_server={"a": 1})
    assert isinstance(pieces[-1], Finished)


async def test_the_template_is_a_strict_one(server: LlamaServer) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]
    async with httpx2.AsyncClient(trust_env=False) as client:
        refused = await client.post(f"{server.base_url}/chat/completions", json={"messages": messages})
    assert refused.status_code == 400 and "must be at the beginning" in refused.text


async def test_a_model_sees_only_the_tool_that_it_must_call(server: LlamaServer) -> None:
    named = {"type": "function", "function": {"name": "other"}}
    answers = [await answer_of(server, HISTORY[:3], TOOLS, tool_choice=choice) for choice in ("auto", named)]
    read = [piece.prompt_tokens for pieces in answers for piece in pieces if isinstance(piece, TokenUsage)]
    assert read[0] > read[-1] + 20


async def test_a_format_is_kept_to(server: LlamaServer) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "ok", "schema": SCHEMA}}
    pieces = await answer_of(server, HISTORY[:3], max_tokens=24, **{FORMAT: wanted})
    assert not any(isinstance(piece, ProviderNotice) for piece in pieces)
    assert json.loads(text_of(pieces)).keys() == {"ok"}
    assert json_of(text_of(pieces), wanted)


async def test_a_schema_that_the_server_cannot_read_is_asked_for_in_the_prompt(server: LlamaServer) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "odd", "schema": {"type": "nothing", "$ref": "#/gone"}}}
    pieces = await answer_of(server, HISTORY[:3], max_tokens=24, **{FORMAT: wanted})
    assert ProviderNotice("parameter", ENFORCED) in pieces and isinstance(pieces[-1], Finished)


async def test_a_template_that_takes_no_system_message_gets_none() -> None:
    history = [Message("system", "Be brief."), Message("assistant", "Hello!"), Message("user", "Hi.")]
    with LlamaServer(Served(template=USER_BEGINS)) as server:
        async with chat_with(server) as chat:
            for messages in (history, history[1:], history):
                pieces = await pieces_of(chat, ModelRequest(messages, verbatim=True, parameters={"max_tokens": 2}))
                assert isinstance(pieces[-1], Finished)
