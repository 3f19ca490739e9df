"""A model server on a real socket that does what a test tells it, faults included."""

from __future__ import annotations

import asyncio
import json
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that the server was sent; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Act = Callable[[StreamReader, StreamWriter], Awaitable[None]]
CHATS = ("/chat/completions", "/messages")


@dataclass(slots=True)
class Upstream:
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def chats(self) -> list[Asked]:
        """What was asked but for lists of models, which come at any time."""
        return [one for one in self.asked if one.path.partition("?")[0].endswith(CHATS)]


def answer(body: bytes | str, status: int = 200, kind: str = "application/json", **headers: str) -> Act:
    """A whole answer with its length."""
    data = body.encode() if isinstance(body, str) else body
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status} Said\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n{more}\r\n"

    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(head.encode() + data)

    return act


def stream(*parts: bytes | str, then: Act | None = None) -> Act:
    """A chunked answer, each part a chunk of its own. It ends as it should, or as `then` says."""

    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for part in parts:
            data = part.encode() if isinstance(part, str) else part
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
        if then:
            await then(reader, writer)
        else:
            writer.write(b"0\r\n\r\n")

    return act


async def hang_up(reader: StreamReader, writer: StreamWriter) -> None:
    """Close the connection in the middle of a chunk."""
    writer.write(b'ff\r\ndata: {"choices":[{"del')
    await writer.drain()
    writer.close()


async def hang(reader: StreamReader, writer: StreamWriter) -> None:
    """Say no more until the client leaves."""
    await reader.read()


def announced(begun: asyncio.Event, then: Act, after: asyncio.Event | None = None) -> Act:
    """Set `begun` when asked; answer as `then` does, `after` that has been set."""

    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        begun.set()
        if after:
            await after.wait()
        await then(reader, writer)

    return act


def left(event: asyncio.Event) -> Act:
    """Say no more, and set the event when the client leaves."""

    async def act(reader: StreamReader, writer: StreamWriter) -> None:
        await hang(reader, writer)
        event.set()

    return act


@asynccontextmanager
async def upstream(
    *acts: Act, repeat: bool = False, chats: bool = False, port: int = 0
) -> AsyncGenerator[Upstream, None]:
    """A server that answers the first request with the first act, and so on; on `repeat` each with the first.

    With `chats` that is about chats only: who asks what the server can do is told that there is no such page.
    """
    state, script, unknown = Upstream(), list(acts), answer('{"error":"not found"}', 404)

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        state.connections += 1
        try:
            while not writer.is_closing() and (asked := await request(reader)):
                if chats and not asked.path.endswith(CHATS):
                    await unknown(reader, writer)
                    continue
                act = script[0] if repeat else script[len(state.asked)]
                state.asked.append(asked)
                await act(reader, writer)
                await writer.drain()
        except ConnectionError:
            return  # the client left while it was written to
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    state.port = server.sockets[0].getsockname()[1]
    async with server:
        yield state


class Paths:
    """An Act that answers by the path of what was asked; `server` is the one it belongs to."""

    def __init__(self, acts: Mapping[str, Act]) -> None:
        self.acts = acts
        self.server = Upstream()

    async def __call__(self, reader: StreamReader, writer: StreamWriter) -> None:
        act = self.acts.get(self.server.asked[-1].path) or answer('{"error":"not found"}', 404)
        await act(reader, writer)


async def request(reader: StreamReader) -> Asked | None:
    """None if the client leaves before it has asked; one that is killed does so in the middle of a body, too."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = first.split(" ")
    return Asked(method, path, headers, body)
