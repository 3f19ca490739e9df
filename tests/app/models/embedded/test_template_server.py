"""A real server whose model has a template that no dialect of the table fits."""

from __future__ import annotations

import asyncio

import pytest

from app.core.messages import Message
from app.core.provider import ModelRequest, TextChunk
from app.models.http.client import model_client
from app.models.wire.hosted_provider import RequestDefaults
from app.models.wire.openai.provider import OpenAIChat
from app.transcript.reply import Reply
from tests.support.models.real_models import LIMIT_S, LlamaServer, Served, need_embedded, pieces_of
from tests.support.models.templates import AS_OBJECT
from tools.catalogue import TOOLS

pytestmark = pytest.mark.anyio
CALL = '<|zz|>bash<|args|>{"command": "ls"}<|zz_end|>'


async def test_its_calls_are_read_by_the_grammar_of_its_template() -> None:
    need_embedded()
    with LlamaServer(Served(template=AS_OBJECT, says=CALL)) as server:
        async with asyncio.timeout(LIMIT_S), model_client(server.base_url) as client:
            defaults = RequestDefaults(max_tokens=64, temperature=0.0)
            chat = OpenAIChat(client, server.base_url, server.served.name, defaults=defaults)
            await chat.window()
            grammar = chat.grammar()
            assert grammar is not None and grammar.begin == "<|zz|>NAME<|args|>"
            pieces = await pieces_of(chat, ModelRequest([Message("user", "List the files.")]))
    tools = {tool.name: tool.parameters for tool in TOOLS}
    reply = Reply(tools, fences=lambda: False, new_id=lambda: "c1", grammar=lambda: grammar)
    for piece in pieces:
        if isinstance(piece, TextChunk):
            [*reply.add(piece)]
    [*reply.end()]
    assert [(call.name, call.arguments) for call in reply.calls] == [("bash", {"command": "ls"})]
