"""A memory of a person, and the jobs that extract memories."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.support.server.serving import Served

BRUNO = "The dog of the person is called Bruno."


async def eventually(look: Callable[[], Awaitable[int]], number: int) -> None:
    while True:
        if await look() == number:
            return
        await asyncio.sleep(0)


async def until_extracted(served: Served) -> None:
    """Wait until no job of extraction is left."""
    store = served.services.store
    await eventually(store.memory_job_count, 0)
