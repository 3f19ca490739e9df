"""The floor that the relay is measured against: the same HTTP client and server, bytes through, nothing else.

python -m benchmarks.bare_relay UPSTREAM_URL: prints its port.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncGenerator

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route


def relay(upstream: str) -> Starlette:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=10)
    client = httpx2.AsyncClient(limits=limits, timeout=60, trust_env=False)

    async def through(body: bytes) -> AsyncGenerator[bytes, None]:
        async with client.stream("POST", f"{upstream}/chat/completions", content=body) as answer:
            async for chunk in answer.aiter_raw():
                yield chunk

    async def chat(request: Request) -> Response:
        return StreamingResponse(through(await request.body()), media_type="text/event-stream")

    return Starlette(routes=[Route("/chat", chat, methods=["POST"])])


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(relay(sys.argv[1]), lifespan="off", access_log=False, log_level="warning")
    uvicorn.Server(config).run([listener])
