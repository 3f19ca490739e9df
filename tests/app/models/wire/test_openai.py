"""The client of OpenAI-compatible servers, against a real socket: what it asks, and what it makes of every fault."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import aclosing
from typing import Any

import pytest

from app.core.messages import Message
from app.core.provider import CallForm, Finished, ModelRequest, TextChunk, TokenUsage
from app.models.capabilities.abilities import AbilityOverrides
from app.models.wire.hosted_provider import RequestDefaults
from app.models.wire.openai.provider import OpenAIChat
from tests.support.models.chatting import (
    ASKED,
    BASH,
    DONE,
    HELLO,
    WHOLE,
    WITH_TOOLS,
    chat_with,
    chunk,
    failure_of,
    pieces_of,
    says,
)
from tests.support.models.sockets import close_at_once
from tests.support.models.upstream import Upstream, answer, hang, hang_up, left, stream, upstream

pytestmark = pytest.mark.anyio


async def test_the_request_says_all_it_should() -> None:
    async with (
        upstream(WHOLE) as server,
        chat_with(server, key="sk-1", defaults=RequestDefaults(temperature=0.5)) as chat,
    ):
        assert await pieces_of(chat, ModelRequest([HELLO], [BASH], max_tokens=9)) == [TextChunk("Hi"), Finished("stop")]
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
    assert asked.headers["authorization"] == "Bearer sk-1"
    assert asked.json == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "bash", "description": "Runs a command.", "parameters": {"type": "object"}},
            }
        ],
        "max_tokens": 9,
        "temperature": 0.5,
    }


async def test_without_a_key_none_is_sent_and_what_is_not_set_is_left_out() -> None:
    async with upstream(WHOLE) as server, chat_with(server, overrides=AbilityOverrides("fenced")) as chat:
        assert chat.call_form is CallForm.FENCED
        await pieces_of(chat, WITH_TOOLS)
    (asked,) = server.asked
    assert "authorization" not in asked.headers
    assert sorted(asked.json) == ["messages", "model", "stream", "stream_options"]


async def test_any_character_can_be_sent() -> None:
    async with upstream(WHOLE) as server, chat_with(server) as chat:
        await pieces_of(chat, ModelRequest([Message("user", "\ud83d|\ud83d\ude00|\x00|\u2028|é")]))
    assert server.asked[0].body.isascii()
    assert server.asked[0].json["messages"][0]["content"] == "\ufffd|😀|\x00|\u2028|é"


async def test_a_connection_is_used_again() -> None:
    async with upstream(WHOLE, repeat=True) as server, chat_with(server) as chat:
        for _ in range(3):
            await pieces_of(chat)
    assert (len(server.asked), server.connections) == (3, 1)


async def test_text_arrives_before_the_answer_is_whole() -> None:
    gone = asyncio.Event()
    async with upstream(stream(says("Hi"), then=left(gone))) as server, chat_with(server) as chat:
        async with aclosing(chat.stream(ASKED)) as pieces:
            assert await anext(pieces) == TextChunk("Hi")
        await gone.wait()  # closing the generator closed the connection, although the client lives on


async def test_a_cancelled_request_leaves_the_server_at_once() -> None:
    gone, begun = asyncio.Event(), asyncio.Event()

    async def listen(chat: OpenAIChat) -> None:
        async with aclosing(chat.stream(ASKED)) as pieces:
            async for _ in pieces:
                begun.set()

    async with upstream(stream(says("Hi"), then=left(gone))) as server, chat_with(server) as chat:
        task = asyncio.create_task(listen(chat))
        await begun.wait()
        task.cancel()
        await gone.wait()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    ("status", "code", "retryable", "advice"),
    [
        (307, "model_not_found", False, "set DRAGOMAN_MODEL_URL to the new address"),
        (400, "model_rejected", False, "see its message"),
        (401, "model_auth", False, "Set DRAGOMAN_MODEL_KEY"),
        (402, "model_auth", False, "no credit"),
        (403, "model_auth", False, "another key"),
        (404, "model_not_found", False, "ends in /v1"),
        (408, "model_silent", True, "Try again"),
        (413, "model_context", False, "DRAGOMAN_WINDOW"),
        (418, "model_rejected", False, "see its message"),
        (422, "model_rejected", False, "see its message"),
        (429, "model_busy", True, "It asks to wait 7 s."),
        (500, "model_failed", True, "server's log"),
        (502, "model_down", True, "gateway"),
        (503, "model_down", True, "loading"),
        (504, "model_silent", True, "gave up"),
        (599, "model_failed", True, "server's log"),
    ],
)
async def test_a_status_says_what_to_do(status: int, code: str, retryable: bool, advice: str) -> None:
    body = f'{{"error":"no: the key sk-secret {"x" * 1000}"}}'
    async with upstream(answer(body, status, retry_after="7")) as server, chat_with(server, key="sk-secret") as chat:
        seen, failure = await failure_of(chat)
    assert (seen, failure.code, failure.retryable) == ([], code, retryable)
    assert f"{server.base_url}/chat/completions answered {status}: " in failure.message
    assert advice in failure.message
    assert "sk-secret" not in failure.message
    assert "the key *** xxx" in failure.message
    assert len(failure.message) < 700


async def test_an_endless_complaint_is_read_in_part() -> None:
    async def complain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 No\r\nconnection: close\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"no " * 20_000)
            await writer.drain()

    async with upstream(complain) as server, chat_with(server) as chat:
        assert (await failure_of(chat))[1].code == "model_failed"


async def test_nothing_listens() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound, but not listening: refused for sure
        async with chat_with(Upstream(reserved.getsockname()[1])) as chat:
            _, failure = await failure_of(chat)
    assert (failure.code, failure.retryable) == ("model_down", True)
    assert f"Nothing listens on {chat.url}" in failure.message
    assert "start your server or set DRAGOMAN_MODEL_URL" in failure.message


async def test_a_cut_inside_a_chunk() -> None:
    async with upstream(stream(says("Hi"), then=hang_up)) as server, chat_with(server) as chat:
        seen, failure = await failure_of(chat)
    assert (seen, failure.code, failure.retryable) == ([TextChunk("Hi")], "model_cut", True)
    assert "in the middle" in failure.message


async def test_a_cut_before_the_answer() -> None:
    async with upstream(close_at_once, repeat=True) as server, chat_with(server) as chat:
        _, failure = await failure_of(chat)
    assert (failure.code, failure.retryable) == ("model_cut", True)
    assert "before it began" in failure.message


async def test_a_cut_after_the_reason_is_no_failure() -> None:
    async with upstream(stream(says("Hi"), chunk(finish="stop"), then=hang_up)) as server, chat_with(server) as chat:
        assert await pieces_of(chat) == [TextChunk("Hi"), Finished("stop")]


async def test_a_connection_left_open_after_done_is_not_waited_for() -> None:
    async with upstream(stream(says("Hi"), DONE, then=hang)) as server, chat_with(server) as chat:
        assert await pieces_of(chat) == [TextChunk("Hi"), Finished("stop")]


@pytest.mark.parametrize("act", [hang, stream(says("Hi"), then=hang)], ids=["before the answer", "in the answer"])
async def test_silence(act: Any) -> None:
    async with upstream(act) as server, chat_with(server, inactivity_s=0.2) as chat:
        _, failure = await failure_of(chat)
    assert (failure.code, failure.retryable) == ("model_silent", True)
    assert "sent nothing for 0.2 s" in failure.message


async def test_a_silent_end_after_the_reason_is_no_failure() -> None:
    act = stream(says("Hi"), chunk(finish="stop"), then=hang)
    async with upstream(act) as server, chat_with(server, inactivity_s=3) as chat:  # no answer takes so long
        assert await pieces_of(chat) == [TextChunk("Hi"), Finished("stop")]


async def test_a_page_and_a_plain_answer() -> None:
    plain = {
        "choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    acts = [answer("<html>Login</html>", kind="text/html"), answer(json.dumps(plain))]
    async with upstream(*acts) as server, chat_with(server) as chat:
        assert (await failure_of(chat))[1].code == "model_garbled"
        assert await pieces_of(chat) == [TextChunk("Hi"), TokenUsage(3, 1), Finished("stop")]


async def test_a_connection_that_the_server_had_closed_is_no_failure() -> None:
    async def goodbye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()  # a second request on the kept-alive connection finds it ended

    async with upstream(WHOLE, goodbye, WHOLE) as server, chat_with(server) as chat:
        first = await pieces_of(chat)
        assert await pieces_of(chat) == first
        assert (server.connections, len(server.asked)) == (2, 3)
