"""Several things at once, of which each is awaited to its end, whatever becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable


async def gather_all(work: Iterable[Awaitable[object]]) -> None:
    """Raises what went wrong, as a group, once none is under way any more."""
    results = await asyncio.gather(*work, return_exceptions=True)
    if wrong := [result for result in results if isinstance(result, BaseException)]:
        raise BaseExceptionGroup("not all of it went well", wrong)
