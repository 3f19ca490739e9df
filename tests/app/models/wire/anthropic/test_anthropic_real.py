"""The Messages API of a real llama.cpp server: its stream, its tokens, what it says of itself, what it refuses."""

from __future__ import annotations

import pytest

from app.core.messages import AskedCall, Message
from app.core.provider import Finished, ModelRequest, TextChunk, TokenUsage
from app.models.capabilities.abilities import AbilityOverrides
from app.models.http.client import model_client
from app.models.wire.anthropic.provider import AnthropicMessages
from tests.support.models.chatting import BASH, failure_of, pieces_of
from tests.support.models.real_models import embedded

pytestmark = pytest.mark.anyio
QUESTION = Message("user", "What is the capital of France? Answer in one word.")
SYSTEM = Message("system", "Be brief.")
CALLED = [
    QUESTION,
    Message("assistant", "I look.", (AskedCall("c1", "bash", {"command": "ls"}, "native"),)),
    Message("tool", "a.txt", call="c1", name="bash"),
]


async def test_a_real_server_that_speaks_the_messages_api() -> None:
    async with embedded() as (server, _):
        url = await server.start()
        chat = AnthropicMessages(
            model_client(url), url, server.weights.name, server.key, overrides=AbilityOverrides("native")
        )
        request = ModelRequest([QUESTION], max_tokens=8, temperature=0, opening=lambda: [SYSTEM])
        pieces = await pieces_of(chat, request)
        said = "".join(piece.text for piece in pieces if isinstance(piece, TextChunk))
        *_, used = (piece for piece in pieces if isinstance(piece, TokenUsage))
        assert "Paris" in said and isinstance(pieces[-1], Finished)
        assert used.prompt_tokens > 20 and 0 < used.completion_tokens <= 8 and used.cached is not None
        *_, again = (piece for piece in await pieces_of(chat, request) if isinstance(piece, TokenUsage))
        assert again.prompt_tokens == used.prompt_tokens and 0 < (again.cached or 0) < again.prompt_tokens
        assert isinstance((await pieces_of(chat, ModelRequest(CALLED, [BASH], max_tokens=2)))[-1], Finished)

        window = await chat.window()
        assert window and await chat.count_tokens(["Hello, World!"]) == [4]
        _, failure = await failure_of(chat, ModelRequest([Message("user", "word " * (window + 9))]))
        assert (failure.code, failure.window) == ("model_context", window)

        stranger = AnthropicMessages(model_client(url), url, server.weights.name, "another-key")
        _, failure = await failure_of(stranger, request)
        assert (failure.code, failure.status) == ("model_auth", 401) and "another-key" not in failure.message
        for one in (chat, stranger):
            await one.close()
