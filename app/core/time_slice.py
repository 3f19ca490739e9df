"""Cooperative yielding: a task that works through a stranger's bytes gives the event loop back after some milliseconds.

A loop over data that is there already awaits nothing that waits, so every other request would stand still until its
end: a megabyte that arrives at once, brackets without end, thousands of small objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from time import perf_counter
from typing import TypeVar

SLICE_S = 0.005
CHARACTERS = 2048  # of text that is handled without a look at the clock
BYTES = 16 * 1024  # the same, of what is not decoded yet
HEAVY = 64 * 1024  # characters that must be worked through at once: a thread does so
T = TypeVar("T")
R = TypeVar("R")


class TimeSlice:
    """The time for which one task has had the event loop, as far as it asks."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._since: float | None = None  # None: the loop has run others since the task last asked

    async def pause_if_over(self) -> None:
        """Let others run if the task has worked for SLICE_S; otherwise return at once."""
        if self._since is None:
            self._since = self._clock()
            asyncio.get_running_loop().call_soon(self._begin_anew)
        elif self._clock() - self._since >= SLICE_S:
            await asyncio.sleep(0)

    def _begin_anew(self) -> None:
        self._since = None


async def sliced(items: Iterable[T]) -> AsyncGenerator[T, None]:
    """Yield each; others get their turns between them."""
    time_slice = TimeSlice()
    for item in items:
        yield item
        await time_slice.pause_if_over()


async def in_heavy_thread(function: Callable[[], R]) -> R:
    """Return what the function returns: work that cannot be divided, while the loop gets the interpreter in turns.

    There is one thread for all such work, so that the loop has one rival. A cancelled caller waits until the function
    has ended, which may work on what the caller looks at then.
    """
    work = asyncio.get_running_loop().run_in_executor(_heavy_thread(), function)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
        raise


@lru_cache(1)
def _heavy_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "heavy")


def parts(data: bytes, most: int = BYTES) -> Iterator[bytes]:
    """Cut a block of server-sent events into parts of at most `most` bytes, between events where that can be."""
    begin = 0
    while len(data) - begin > most:
        end = data.rfind(b"\n\n", begin, begin + most) + 2
        end = end if end > begin + 1 else begin + most
        yield data[begin:end]
        begin = end
    yield data[begin:] if begin else data
