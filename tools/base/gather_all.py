"""Concurrent awaitables, each awaited to its end even when others fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable


async def gather_all(work: Iterable[Awaitable[object]]) -> None:
    """Await all; raise the failures as one group once none is running."""
    results = await asyncio.gather(*work, return_exceptions=True)
    if wrong := [result for result in results if isinstance(result, BaseException)]:
        raise BaseExceptionGroup("some of the concurrent tasks failed", wrong)
