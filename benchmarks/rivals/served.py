"""A model's text as Server-Sent Events, as their own documentation would have it served."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

Answer = Callable[[str], AsyncGenerator[str, None]]


def serve(answer: Answer) -> None:
    """Serve until the process is killed, after its port has been printed."""

    async def events(message: str) -> AsyncGenerator[bytes, None]:
        async with aclosing(answer(message)) as texts:
            async for text in texts:
                yield b"data: " + json.dumps({"type": "text.delta", "text": text}).encode() + b"\n\n"

    async def chat(request: Request) -> Response:
        message = (await request.json())["message"]
        return StreamingResponse(events(message), media_type="text/event-stream")

    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(listener.getsockname()[1], flush=True)
    app = Starlette(routes=[Route("/chat", chat, methods=["POST"])])
    uvicorn.Server(uvicorn.Config(app, lifespan="off", access_log=False, log_level="warning")).run([listener])
