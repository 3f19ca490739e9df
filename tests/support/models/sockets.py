"""Servers that answer by bytes, and what becomes of their answers in each transport."""

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
from tests.support.models.upstream import hang, request

LOOPS = [pytest.param(("asyncio", {"use_uvloop": fast}), id="uvloop" if fast else "asyncio") for fast in (True, False)]
Serve = Callable[[StreamReader, StreamWriter], Awaitable[None]]
LIMIT_S = 60
SILENCE_S = 0.1  # before a server is given up that never says anything
FALLEN_SILENT_S = 2  # and one that has said something first, which may come late on a busy machine
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
LARGE = b"x" * 3_000_000


async def close_at_once(_: StreamReader, writer: StreamWriter) -> None:
    writer.close()


async def reset(_: StreamReader, writer: StreamWriter) -> None:
    await writer.drain()
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


ANSWERS: dict[str, tuple[bytes, Serve]] = {
    "length": (OK + b"content-length: 5\r\n\r\nhello", hang),
    "no body": (OK + b"content-length: 0\r\n\r\n", hang),
    "chunks": (CHUNKED + b"5\r\nhello\r\n6;why=not\r\n world\r\n0\r\nchecksum: 1\r\n\r\n", hang),
    "no chunks": (CHUNKED + b"0\r\n\r\n", hang),
    "until the end": (OK + b"\r\nhello", close_at_once),
    "until the end, closing": (OK + b"connection: close\r\n\r\nhello", close_at_once),
    "of old": (b"HTTP/1.0 200 OK\r\n\r\nhello", close_at_once),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", hang),
    "304": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", hang),
    "500": (b"HTTP/1.1 500 Oh No\r\ncontent-length: 5\r\n\r\nhello", hang),
    "302": (b"HTTP/1.1 302 There\r\nlocation: /x\r\ncontent-length: 5\r\n\r\nhello", hang),
    "no reason": (b"HTTP/1.1 200\r\ncontent-length: 5\r\n\r\nhello", hang),
    "continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 5\r\n\r\nhello", hang),
    "hints": (b"HTTP/1.1 103 Hints\r\nlink: </a>\r\n\r\n" * 3 + OK + b"content-length: 5\r\n\r\nhello", hang),
    "not ASCII": (OK + "x: \xe4\r\ncontent-length: 5\r\n\r\nhello".encode("latin-1"), hang),
    "line feeds": (b"HTTP/1.1 200 OK\ncontent-length: 5\n\nhello", hang),
    "length and chunks": (
        OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        hang,
    ),
    "compressed": (OK + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"hello", mtime=0), close_at_once),
    "said to be compressed": (OK + b"content-encoding: gzip\r\ncontent-length: 5\r\n\r\nhello", hang),
    "large": (OK + b"content-length: 3000000\r\n\r\n" + LARGE, hang),
    "too much": (OK + b"content-length: 5\r\n\r\nhello world", hang),
    "two answers": ((OK + b"content-length: 5\r\n\r\nhello") * 2, hang),
    "nothing": (b"", close_at_once),
    "nothing, reset": (b"", reset),
    "silence": (b"", hang),
    "half a head": (OK + b"content-le", close_at_once),
    "half a head, reset": (OK + b"content-le", reset),
    "half a head, silence": (OK + b"content-le", hang),
    "hints and no more": (b"HTTP/1.1 103 Hints\r\n\r\n", close_at_once),
    "too short": (OK + b"content-length: 9\r\n\r\nhello", close_at_once),
    "too short, reset": (OK + b"content-length: 9\r\n\r\nhello", reset),
    "too short, silence": (OK + b"content-length: 9\r\n\r\nhello", hang),
    "half a chunk": (CHUNKED + b"5\r\nhello\r\n9\r\nwor", close_at_once),
    "half a chunk, reset": (CHUNKED + b"5\r\nhello\r\n9\r\nwor", reset),
    "no last chunk": (CHUNKED + b"5\r\nhello\r\n", close_at_once),
    "chunks of no length": (CHUNKED + b"5\r\nhello\r\nzz\r\nworld\r\n0\r\n\r\n", hang),
    "a page": (b"<html>This is not the server you are looking for</html>", hang),
    "another protocol": (b"SSH-2.0-OpenSSH_9.2\r\n", hang),
    "no length": (OK + b"content-length: many\r\n\r\nhello", hang),
    "two lengths": (OK + b"content-length: 3\r\ncontent-length: 5\r\n\r\nhello", hang),
    "no end of headers": (OK + b"x: " + b"y" * 3 * MOST_FRAMING, hang),
    "no end of hints": (b"HTTP/1.1 103 Hints\r\n\r\n" * MOST_FRAMING, hang),
}


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
async def serving_bytes(serve: Serve) -> AsyncGenerator[str, None]:
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
    async with serving_bytes(serve) as url:
        return {name: await outcome(one, url, method, **more) for name, one in transports().items()}
