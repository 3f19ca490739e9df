"""A client of the tests' own model server, and what a test says to it and hears from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from app.core.messages import Message
from app.core.provider import ModelRequest, Piece, Provider, ProviderFailed
from app.models.http.client import TransportKind, model_client
from app.models.wire.openai.provider import OpenAIChat
from tests.support.models.upstream import Act, Upstream, answer, stream
from tools.base.rights import Risk
from tools.tool import Tool, answering

LIMIT_S = 30


async def nothing(arguments: Any, context: Any) -> str:
    return ""


BASH = Tool("bash", "Runs a command.", {"type": "object"}, Risk.EXECUTE, answering(nothing))
HELLO = Message("user", "Hello")
ASKED = ModelRequest([HELLO])
WITH_TOOLS = ModelRequest([HELLO], [BASH])


def chunk(delta: object = None, finish: str | None = None) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta or {}, 'finish_reason': finish}]})}\n\n"


def says(text: str) -> str:
    return chunk({"content": text})


DONE = "data: [DONE]\n\n"
WHOLE = stream(says("Hi"), chunk(finish="stop"), DONE)


@asynccontextmanager
async def chat_with(
    server: Upstream, *, inactivity_s: float = LIMIT_S, transport: TransportKind = "lean", **options: Any
) -> AsyncGenerator[OpenAIChat, None]:
    """A client of this server; the whole test is bounded by it."""
    options = {"model": "m", "key": None} | options
    async with asyncio.timeout(LIMIT_S):
        client = model_client(server.base_url, inactivity_s=inactivity_s, transport=transport)
        chat = OpenAIChat(client, server.base_url, **options)
        try:
            yield chat
        finally:
            await chat.close()


async def pieces_of(chat: Provider, request: ModelRequest = ASKED) -> list[Piece]:
    async with aclosing(chat.stream(request)) as pieces:
        return [piece async for piece in pieces]


async def failure_of(chat: Provider, request: ModelRequest = ASKED) -> tuple[list[Piece], ProviderFailed]:
    """What came before the failure, and the failure."""
    seen: list[Piece] = []
    with pytest.raises(ProviderFailed) as failed:
        async with aclosing(chat.stream(request)) as pieces:
            async for piece in pieces:
                seen.append(piece)  # noqa: PERF401 (what came first must outlive the exception)
    return seen, failed.value


REFUSED_TOOLS = '{"error":{"message":"tools are not supported by this model"}}'


def refusal(message: str, param: str | None = None, status: int = 400) -> Act:
    return answer(json.dumps({"error": {"message": message, "param": param}}), status)
