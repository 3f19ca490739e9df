"""A client of the Messages API, and parts of its streams, for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from app.core.provider import Finished, Piece, ProviderFailed, ProviderNotice, TextChunk, TokenUsage
from app.models.http.answer_stream import joined
from app.models.http.client import model_client
from app.models.wire.anthropic.answer import MessagesAnswer
from app.models.wire.anthropic.provider import AnthropicMessages
from tests.support.models.chatting import LIMIT_S
from tests.support.models.upstream import Act, Upstream, answer, stream

KEY = "sk-ant-secret"
URL = "https://api.example.com/v1/messages"
ORIGIN = "claude at api.example.com, messages"
BEFORE = "0123456789abcdef"


def event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def start(input: int = 3) -> str:
    return event("message_start", message={"role": "assistant", "usage": {"input_tokens": input, "output_tokens": 1}})


def delta(index: int, kind: str, text: str) -> str:
    """Of a text or of thoughts."""
    return event("content_block_delta", index=index, delta={"type": f"{kind}_delta", kind: text})


def stop(index: int) -> str:
    return event("content_block_stop", index=index)


def says(text: str, index: int = 0) -> str:
    return delta(index, "text", text)


def end(reason: str, out: Any = 2, *, whole: bool = True) -> str:
    told = event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": out})
    return told + (event("message_stop") if whole else "")


WHOLE = stream(start(), says("Hi"), end("end_turn"))
HI: list[Piece] = [TokenUsage(3, 1), TextChunk("Hi"), TokenUsage(3, 2), Finished("stop")]


@asynccontextmanager
async def claude_at(
    server: Upstream, model: str = "claude-m", **options: Any
) -> AsyncGenerator[AnthropicMessages, None]:
    """A client of this server; the whole test is bounded by it."""
    async with asyncio.timeout(LIMIT_S):
        chat = AnthropicMessages(model_client(server.base_url), server.base_url, model, KEY, **options)
        try:
            yield chat
        finally:
            await chat.close()


def fails(code: str, retryable: bool, status: int | None = None) -> tuple[str, bool, int | None]:
    return code, retryable, status


def settled(pieces: Sequence[Any]) -> list[Any]:
    """The pieces with usage only where a whole answer ends: that it is told early has a test of its own."""
    used = [piece for piece in pieces if isinstance(piece, TokenUsage)]
    rest = [piece for piece in pieces if not isinstance(piece, TokenUsage)]
    if used and rest and isinstance(rest[-1], Finished):
        rest.insert(len(rest) - 1 - any(isinstance(piece, ProviderNotice) for piece in rest[-2:]), used[-1])
    return rest


def outcome(parts: Sequence[bytes]) -> list[Any]:
    """The pieces, settled, neighbouring text joined, and what went wrong in the end."""
    answer, pieces = MessagesAnswer(URL, ORIGIN, BEFORE), list[Any]()
    try:
        for part in parts:
            pieces.extend(answer.feed(part))
            if answer.done:
                break
        pieces.extend(answer.close())
    except ProviderFailed as failure:
        return [*joined(settled(pieces)), fails(failure.code, failure.retryable, failure.status)]
    return list(joined(settled(pieces)))


def error_answer(kind: str, message: str, status: int, **headers: str) -> Act:
    return answer(json.dumps({"type": "error", "error": {"type": kind, "message": message}}), status, **headers)
