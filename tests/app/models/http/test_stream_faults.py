"""Streams as they really come, over real sockets: reset anywhere, compressed unasked, a byte at a time, without end."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import tracemalloc
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.core.provider import ProviderFailed
from app.models.http.client import CompletionRequest, TransportKind, model_client
from app.models.http.exchange import post
from app.models.http.sse import MAX_EVENT_BYTES
from app.models.wire.openai.answer import ChatAnswer
from app.models.wire.openai.provider import OpenAIChat
from tests.support.models.answers import FIXTURES, URL, Outcome, outcome
from tests.support.models.chatting import DONE, LIMIT_S, WHOLE, WITH_TOOLS, chat_with, chunk, pieces_of, says
from tests.support.models.upstream import Act, answer, stream, upstream
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

STREAMS = ("llama_cpp/parallel_calls.sse", "openrouter/reasoning.sse", "gemini/parallel_calls.sse")
PLACES = 24  # where each of them is cut over sockets; at all others without
TRANSPORTS = pytest.mark.parametrize("transport", ["lean", "httpx2"])
BLOCK, BLOCKS = b"x" * 65_536, 1024  # 64 MiB


def head(*more: str) -> bytes:
    lines = ("HTTP/1.1 200 OK", "content-type: text/event-stream", *more, "connection: close")
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n"


def reset(body: bytes, *, hard: bool) -> Act:
    """So much of an answer; then the connection ends, with a reset or as if nothing were missing."""

    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(head() + body)
        await writer.drain()
        if hard:
            peer: socket.socket = writer.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    return act


async def heard(chat: OpenAIChat) -> Outcome:
    seen: list[object] = []
    try:
        seen += await pieces_of(chat, WITH_TOOLS)
    except ProviderFailed as failure:
        seen.append(failure)
    return outcome(seen)  # type: ignore[arg-type]


@TRANSPORTS
@pytest.mark.parametrize("name", STREAMS)
async def test_a_connection_that_ends_anywhere_has_one_outcome(name: str, transport: TransportKind) -> None:
    body = (FIXTURES / name).read_bytes()
    places = [len(body) * place // PLACES for place in range(PLACES + 1)]
    async with upstream(reset(body, hard=False)) as server, chat_with(server, transport=transport) as chat:
        whole = await heard(chat)
    assert whole.calls
    ends = [reset(body[:place], hard=hard) for hard in (False, True) for place in places]

    async def say(reader: StreamReader, writer: StreamWriter) -> None:
        await ends[0](reader, writer)

    async with upstream(say, repeat=True) as server, chat_with(server, transport=transport) as chat:
        while ends:
            seen = await heard(chat)
            assert seen.calls in ((), whole.calls), len(ends)
            assert seen.end == (whole.end if seen.calls else "model_cut"), (len(ends), seen)
            ends.pop(0)


def compressed(body: bytes) -> Act:
    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(head("content-encoding: gzip") + body)
        await writer.drain()
        writer.close()

    return act


@TRANSPORTS
@pytest.mark.parametrize("name", STREAMS)
async def test_an_answer_that_is_compressed_unasked_is_read(name: str, transport: TransportKind) -> None:
    body = (FIXTURES / name).read_bytes()
    zipped = gzip.compress(body)
    acts = [stream(body), compressed(zipped), compressed(zipped[: len(zipped) // 2]), compressed(b"data: plain\n\n")]
    async with upstream(*acts) as server, chat_with(server, transport=transport) as chat:
        whole, seen, half, lie = [await heard(chat) for _ in acts]
    assert server.asked[0].headers["accept-encoding"] == "identity"
    assert seen == whole
    assert (half.calls, half.end, lie.calls, lie.end) == ((), "model_cut", (), "model_cut")


@TRANSPORTS
async def test_a_chunk_per_byte_and_one_chunk_for_all(transport: TransportKind) -> None:
    body = (FIXTURES / STREAMS[0]).read_bytes()
    acts = [stream(body), stream(*(body[at : at + 1] for at in range(len(body))))]
    async with upstream(*acts) as server, chat_with(server, transport=transport) as chat:
        one, many = [await heard(chat) for _ in acts]
    assert one == many and len(one.calls) == 2


@contextmanager
def bounded(most: int) -> Iterator[None]:
    """No more memory than this may be held within, by Python's own count."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def endless(*first: bytes, block: bytes = BLOCK) -> Act:
    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(head() + b"".join(first))
        for _ in range(BLOCKS):
            writer.write(block)
            await writer.drain()

    return act


@TRANSPORTS
@pytest.mark.parametrize("start", [b"data: ", b"{", b"<", b": ", b"data: {}\n\nevent: "], ids=repr)
async def test_64_mib_without_a_newline_are_refused(start: bytes, transport: TransportKind) -> None:
    with bounded(2 * MAX_EVENT_BYTES):
        async with upstream(endless(start)) as server, chat_with(server, transport=transport) as chat:
            seen = await heard(chat)
    assert seen == Outcome(end="model_too_long")


@TRANSPORTS
async def test_64_mib_that_were_compressed_are_refused(transport: TransportKind) -> None:
    bomb = gzip.compress(b"data: " + BLOCK * BLOCKS)
    with bounded(2 * MAX_EVENT_BYTES):
        async with upstream(compressed(bomb)) as server, chat_with(server, transport=transport) as chat:
            seen = await heard(chat)
    assert seen == Outcome(end="model_too_long")


@TRANSPORTS
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed_and_no_key_goes_there(status: int, transport: TransportKind) -> None:
    async with upstream(WHOLE, repeat=True) as elsewhere:
        led = answer("", status, location=f"http://127.0.0.1:{elsewhere.port}/v1/chat/completions")
        async with upstream(led, repeat=True) as server, chat_with(server, transport=transport, key="sk-1") as chat:
            seen = await heard(chat)
            assert seen == Outcome(end="model_not_found")
        assert elsewhere.connections == 0


def test_64_mib_of_blank_lines_cost_nothing() -> None:
    """A busy server keeps the connection awake with them: they are not held, and not read twice."""
    answer = ChatAnswer(URL)
    with bounded(1024 * 1024):
        for _ in range(BLOCKS):
            assert not list(answer.feed(b"\n" * len(BLOCK)))
    assert list(answer.feed(says("Hi").encode()))


async def test_a_run_whose_model_is_cut_off_anywhere_ends_once_and_runs_no_half(tmp_path: Path) -> None:
    body = (FIXTURES / "deepseek/parallel_calls.sse").read_bytes()
    places = [len(body) * place // 12 for place in range(12)]
    script: list[Act] = []

    async def say(reader: StreamReader, writer: StreamWriter) -> None:
        await (script.pop(0) if script else END)(reader, writer)

    async with (
        asyncio.timeout(60),
        upstream(say, repeat=True, chats=True) as server,
        chat_with(server) as chat,
        serving(tmp_path, chat, window=32_768) as served,
    ):
        for place in places:
            script[:] = [reset(body[:place], hard=bool(place % 2))]
            events = await served.chat("Go.")
            kinds = [event["type"] for event in events]
            assert len([kind for kind in kinds if kind in ("run.finished", "run.failed")]) == 1, place
            assert kinds[-1] in ("run.finished", "run.failed")
            assert "tool.started" not in kinds, place


END = stream(says("Done."), chunk(finish="stop"), DONE)


@TRANSPORTS
async def test_a_body_is_let_go_while_it_is_answered(transport: TransportKind) -> None:
    async with asyncio.timeout(LIMIT_S), upstream(WHOLE) as server:
        async with model_client(server.base_url, transport=transport) as client:
            request = CompletionRequest(f"{server.base_url}/chat/completions", b"{}" * 1000, {"x-mine": "1"}, None, 7)
            response = await post(client, request)
            assert b"".join([part async for part in response.request.stream]) == b""  # type: ignore[union-attr]
            assert response.request.extensions["timeout"]["read"] == 7
            assert await response.aread()
        (asked,) = server.asked
        assert (asked.body, asked.headers["x-mine"]) == (request.content, "1")
        assert asked.headers["host"] == f"127.0.0.1:{server.port}"


@TRANSPORTS
async def test_a_cookie_of_a_load_balancer_is_sent_back(transport: TransportKind) -> None:
    first = answer("{}", set_cookie="node=a; Path=/")
    async with asyncio.timeout(LIMIT_S), upstream(first, WHOLE) as server:
        async with model_client(server.base_url, transport=transport) as client:
            for _ in range(2):
                response = await post(client, CompletionRequest(server.base_url, b"{}", {}))
                await response.aread()
        assert [asked.headers.get("cookie") for asked in server.asked] == [None, "node=a"]
