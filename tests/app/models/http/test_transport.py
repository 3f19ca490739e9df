"""Our transport against httpx2's own: whatever a server does, the same bytes and the same class of error."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx2
import pytest

from app.models.http.client import LIMITS
from app.models.http.transport.incoming import MOST_FRAMING
from app.models.http.transport.lean import LeanTransport
from tests.support.models.upstream import request

LOOPS = [pytest.param(("asyncio", {"use_uvloop": fast}), id="uvloop" if fast else "asyncio") for fast in (True, False)]
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS)]

Serve = Callable[[StreamReader, StreamWriter], Awaitable[None]]
LIMIT_S = 60
SILENCE_S = 0.1  # before a server is given up that never says anything
FALLEN_SILENT_S = 2  # and one that has said something first, which may come late on a busy machine
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
LARGE = b"x" * 3_000_000


async def close(_: StreamReader, writer: StreamWriter) -> None:
    writer.close()


async def reset(_: StreamReader, writer: StreamWriter) -> None:
    await writer.drain()
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def silence(reader: StreamReader, _: StreamWriter) -> None:
    await reader.read()


ANSWERS: dict[str, tuple[bytes, Serve]] = {
    "length": (OK + b"content-length: 5\r\n\r\nhello", silence),
    "no body": (OK + b"content-length: 0\r\n\r\n", silence),
    "chunks": (CHUNKED + b"5\r\nhello\r\n6;why=not\r\n world\r\n0\r\nchecksum: 1\r\n\r\n", silence),
    "no chunks": (CHUNKED + b"0\r\n\r\n", silence),
    "until the end": (OK + b"\r\nhello", close),
    "until the end, closing": (OK + b"connection: close\r\n\r\nhello", close),
    "of old": (b"HTTP/1.0 200 OK\r\n\r\nhello", close),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", silence),
    "304": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", silence),
    "500": (b"HTTP/1.1 500 Oh No\r\ncontent-length: 5\r\n\r\nhello", silence),
    "302": (b"HTTP/1.1 302 There\r\nlocation: /x\r\ncontent-length: 5\r\n\r\nhello", silence),
    "no reason": (b"HTTP/1.1 200\r\ncontent-length: 5\r\n\r\nhello", silence),
    "continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 5\r\n\r\nhello", silence),
    "hints": (b"HTTP/1.1 103 Hints\r\nlink: </a>\r\n\r\n" * 3 + OK + b"content-length: 5\r\n\r\nhello", silence),
    "not ASCII": (OK + "x: \xe4\r\ncontent-length: 5\r\n\r\nhello".encode("latin-1"), silence),
    "line feeds": (b"HTTP/1.1 200 OK\ncontent-length: 5\n\nhello", silence),
    "length and chunks": (
        OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        silence,
    ),
    "compressed": (OK + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"hello", mtime=0), close),
    "said to be compressed": (OK + b"content-encoding: gzip\r\ncontent-length: 5\r\n\r\nhello", silence),
    "large": (OK + b"content-length: 3000000\r\n\r\n" + LARGE, silence),
    "too much": (OK + b"content-length: 5\r\n\r\nhello world", silence),
    "two answers": ((OK + b"content-length: 5\r\n\r\nhello") * 2, silence),
    "nothing": (b"", close),
    "nothing, reset": (b"", reset),
    "silence": (b"", silence),
    "half a head": (OK + b"content-le", close),
    "half a head, reset": (OK + b"content-le", reset),
    "half a head, silence": (OK + b"content-le", silence),
    "hints and no more": (b"HTTP/1.1 103 Hints\r\n\r\n", close),
    "too short": (OK + b"content-length: 9\r\n\r\nhello", close),
    "too short, reset": (OK + b"content-length: 9\r\n\r\nhello", reset),
    "too short, silence": (OK + b"content-length: 9\r\n\r\nhello", silence),
    "half a chunk": (CHUNKED + b"5\r\nhello\r\n9\r\nwor", close),
    "half a chunk, reset": (CHUNKED + b"5\r\nhello\r\n9\r\nwor", reset),
    "no last chunk": (CHUNKED + b"5\r\nhello\r\n", close),
    "chunks of no length": (CHUNKED + b"5\r\nhello\r\nzz\r\nworld\r\n0\r\n\r\n", silence),
    "a page": (b"<html>This is not the server you are looking for</html>", silence),
    "another protocol": (b"SSH-2.0-OpenSSH_9.2\r\n", silence),
    "no length": (OK + b"content-length: many\r\n\r\nhello", silence),
    "two lengths": (OK + b"content-length: 3\r\ncontent-length: 5\r\n\r\nhello", silence),
    "no end of headers": (OK + b"x: " + b"y" * 3 * MOST_FRAMING, silence),
    "no end of hints": (b"HTTP/1.1 103 Hints\r\n\r\n" * MOST_FRAMING, silence),
}
# Where httpx2's own would wait for more.
SEEN_SOONER = ("no end of hints", "a page", "another protocol")
# What both wait for in vain. Any other answer is read to its end, however late it comes.
SILENT_S = {"silence": SILENCE_S, "half a head, silence": SILENCE_S, "too short, silence": FALLEN_SILENT_S}


def transports() -> dict[str, httpx2.AsyncBaseTransport]:
    return {"lean": LeanTransport(LIMITS), "stock": httpx2.AsyncHTTPTransport(limits=LIMITS)}


def client_of(transport: httpx2.AsyncBaseTransport | None = None, **limits: float | None) -> httpx2.AsyncClient:
    timeout = httpx2.Timeout(LIMIT_S, **limits)
    return httpx2.AsyncClient(transport=transport or LeanTransport(LIMITS), timeout=timeout)


def bounded(serve: Serve) -> Serve:
    """The connection is closed whatever happens; a client may leave."""

    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except ConnectionError:
            return
        finally:
            writer.close()

    return act


@asynccontextmanager
async def serving(serve: Serve) -> AsyncGenerator[str, None]:
    server = await asyncio.start_server(bounded(serve), "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def answering(said: bytes, then: Serve) -> Serve:
    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        if await request(reader):
            writer.write(said)
            await then(reader, writer)

    return serve


async def outcome(
    transport: httpx2.AsyncBaseTransport, url: str, method: str = "POST", *, silence_s: float = LIMIT_S, **more: Any
) -> tuple[int | str, bytes]:
    """Status or error, and the bytes that came."""
    body, timeout = b"", httpx2.Timeout(LIMIT_S, read=silence_s)
    async with asyncio.timeout(LIMIT_S), httpx2.AsyncClient(transport=transport, timeout=timeout) as client:
        try:
            async with client.stream(method, url, **({"content": b"{}"} | more)) as response:
                async with aclosing(response.aiter_bytes()) as blocks:
                    async for block in blocks:
                        body += block
                return response.status_code, body
        except httpx2.HTTPError as error:
            assert error.request.url == url
            return type(error).__name__, body


async def outcomes(serve: Serve, method: str = "POST", **more: Any) -> dict[str, tuple[int | str, bytes]]:
    async with serving(serve) as url:
        return {name: await outcome(one, url, method, **more) for name, one in transports().items()}


@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in SEEN_SOONER])
async def test_an_answer_is_read_as_httpx2_reads_it(name: str) -> None:
    got = await outcomes(answering(*ANSWERS[name]), silence_s=SILENT_S.get(name, LIMIT_S))
    assert got["lean"] == got["stock"]
    assert (got["lean"][0] == "ReadTimeout") == (name in SILENT_S)


@pytest.mark.parametrize("name", SEEN_SOONER)
async def test_what_can_never_become_an_answer_is_not_waited_for(name: str) -> None:
    async with serving(answering(*ANSWERS[name])) as url:
        assert await outcome(LeanTransport(LIMITS), url) == ("RemoteProtocolError", b"")


async def test_a_head_alone_is_an_answer_where_no_body_was_asked_for() -> None:
    got = await outcomes(answering(OK + b"content-length: 5\r\n\r\n", silence), method="HEAD")
    assert got["lean"] == got["stock"] == (200, b"")
