"""A server whose calls become tasks, in a process of its own, and what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.support.mcp.faulty_servers import FIXTURES, free_port, serving
from tests.support.mcp.served import write_list

TASKING = FIXTURES / "tasking.py"
ERAS = ("2026-07-28", "extension", "2025-11-25")


class TaskServer:
    """The server at `port`; one that is started again there has forgotten its tasks."""

    def __init__(self, era: str) -> None:
        self.era, self.port = era, free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    @asynccontextmanager
    async def started(self) -> AsyncGenerator[httpx2.AsyncClient, None]:
        client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", trust_env=False)
        async with serving(TASKING, self.era, self.port), client:
            yield client

    def listed_in(self, folder: Path) -> Path:
        """A file of servers that has this one as `s`."""
        return write_list(folder, s={"url": self.url})


async def requested(client: httpx2.AsyncClient, method: str) -> list[dict[str, Any]]:
    return [one for one in (await client.get("/log")).json() if one["method"] == method]


async def until_requested(client: httpx2.AsyncClient, method: str) -> dict[str, Any]:
    while not (found := await requested(client, method)):
        await asyncio.wait_for(client.get("/log"), 10)  # each request waits; the test is bounded
    return found[0]
