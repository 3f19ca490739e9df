"""People with tokens, for tests: who they are, and requests as bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from app.storage.tokens import TokenRow
from routes.access.token_text import fingerprint, new_token
from tests.support.server.serving import Served

LIMIT_S = 30


async def bearer(served: Served, name: str, role: str = "user", **more: Any) -> dict[str, str]:
    """The header that signs in as someone new."""
    token = new_token()
    await served.services.store.write([TokenRow(fingerprint(token), name, role, 1.0, **more)])
    return {"authorization": f"Bearer {token}"}


@asynccontextmanager
async def connected(port: int) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
    """A connection to this machine, closed in the end; all that is done with it is bounded."""
    async with asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        try:
            yield reader, writer
        finally:
            writer.close()


async def answer(port: int, request: bytes) -> bytes:
    """What the server says to these bytes until it closes."""
    async with connected(port) as (reader, writer):
        writer.write(request)
        return await reader.read(-1)


def port_of(served: Served) -> int:
    port = served.client.base_url.port
    assert port
    return port


def parsed(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


def error_of(body: bytes) -> str:
    return str(json.loads(body)["error"]["code"])
