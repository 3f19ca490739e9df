"""A proxy in front of a model server that keeps what went through it, byte for byte."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx2
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.server.serving import listening

LIMIT_S = 300


@dataclass(slots=True)
class Exchange:
    """A request and its answer. `ended`: the server has sent all of it."""

    path: str
    asked: bytes
    status: int
    body: bytes = b""
    ended: bool = False


@dataclass(slots=True)
class Recorder:
    """The exchanges so far; `base_url` is the proxy's."""

    upstream: str
    client: httpx2.AsyncClient
    base_url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def chats(self) -> list[Exchange]:
        return [one for one in self.exchanges if one.path.endswith("/chat/completions")]

    async def forward(self, request: Request) -> Response:
        body = await request.body()
        wanted = {name: value for name, value in request.headers.items() if name in ("authorization", "content-type")}
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        asked = self.client.build_request(request.method, self.upstream + path, content=body, headers=wanted)
        try:
            answer = await self.client.send(asked, stream=True)
        except httpx2.TransportError as gone:
            return PlainTextResponse(f"The server does not answer: {gone!r}", 502)
        exchange = Exchange(request.url.path, body, answer.status_code)
        self.exchanges.append(exchange)
        return StreamingResponse(
            kept(answer, exchange),
            answer.status_code,
            media_type=answer.headers.get("content-type"),
            background=BackgroundTask(answer.aclose),
        )


async def kept(answer: httpx2.Response, exchange: Exchange) -> AsyncGenerator[bytes, None]:
    try:
        with suppress(httpx2.TransportError):  # a server that breaks off ends this, too
            async for part in answer.aiter_bytes():
                exchange.body += part
                yield part
            exchange.ended = True
    finally:
        await answer.aclose()


@asynccontextmanager
async def recording(base_url: str) -> AsyncGenerator[Recorder, None]:
    """Stand in front of the server with this URL, which ends in /v1."""
    parts = urlsplit(base_url)
    async with httpx2.AsyncClient(timeout=LIMIT_S, trust_env=False) as client:
        recorder = Recorder(f"{parts.scheme}://{parts.netloc}", client)
        app = Starlette(routes=[Route("/{path:path}", recorder.forward, methods=["GET", "POST"])])
        async with listening(app) as port:
            recorder.base_url = f"http://127.0.0.1:{port}{parts.path}"
            yield recorder
