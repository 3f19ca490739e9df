"""The floor that the relay is measured against: bytes through uvicorn from a raw protocol, and nothing else.

python -m benchmarks.floors.bare_relay UPSTREAM_URL: prints its port. No timeouts, no errors, no framework: its cost
cannot be saved.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast
from urllib.parse import urlsplit

import httptools
import uvicorn

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]
HEADERS = [(b"content-type", b"text/event-stream")]


class Upstream(asyncio.Protocol):
    """A connection to the model server, one answer at a time."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.over = False
        self._parser = httptools.HttpResponseParser(self)
        self._news: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are not of its class

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        if self._news and not self._news.done():
            self._news.set_result(None)

    def on_body(self, block: bytes) -> None:
        self.blocks.append(block)

    def on_message_complete(self) -> None:
        self.over = True

    async def next(self) -> bytes:
        if not self.blocks and not self.over:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        data = b"".join(self.blocks)
        self.blocks.clear()
        return data


class Relay:
    """An ASGI application."""

    def __init__(self, upstream: str) -> None:
        self._place = urlsplit(upstream)
        self._idle: list[Upstream] = []

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        upstream = await self._connected()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self._place.netloc}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        upstream.over = False
        upstream.transport.write(head.encode() + body)
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        while upstream.blocks or not upstream.over:
            await send({"type": "http.response.body", "body": await upstream.next(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        self._idle.append(upstream)

    async def _connected(self) -> Upstream:
        if self._idle:
            return self._idle.pop()
        host, port = self._place.hostname, self._place.port
        assert host and port
        _, upstream = await asyncio.get_running_loop().create_connection(Upstream, host, port)
        return upstream


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(Relay(sys.argv[1]), lifespan="off", access_log=False, log_level="warning")
    uvicorn.Server(config).run([listener])
