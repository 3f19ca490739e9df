"""Cooperative yielding: a task that works through untrusted bytes gives the event loop back after some milliseconds.

A loop over data that is there already awaits nothing that waits, so every other request would stand still until its
end: a megabyte that arrives at once, brackets without end, thousands of small objects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import lru_cache
from time import perf_counter
from typing import ClassVar, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from app.core.log_context import log_context

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
            await Turns.of_loop().next(log_context().principal)

    def _begin_anew(self) -> None:
        self._since = None


class Turns:
    """Tasks whose slice is over. Each turn of the loop one of them goes on, and the principals take turns.

    So however many runs a principal has, and whatever their models' servers send, others get as much of the loop.
    """

    _loops: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.heavy = WeakValueDictionary[str, asyncio.Lock]()  # by principal
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by principal, the next one first

    @classmethod
    def of_loop(cls) -> Turns:
        return cls._loops.setdefault(asyncio.get_running_loop(), cls())

    async def next(self, principal: str) -> None:
        """Wait for this task's turn."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._give)
        self._waiting.setdefault(principal, deque()).append(turn)
        await turn

    def _give(self) -> None:
        principal = next(iter(self._waiting))
        turns = self._waiting.pop(principal)
        turn = turns.popleft()
        if turns:
            self._waiting[principal] = turns  # behind the others
        if not turn.done():  # else its task was cancelled
            turn.set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._give)


async def sliced(items: Iterable[T]) -> AsyncGenerator[T, None]:
    """Yield each; others get their turns between them."""
    time_slice = TimeSlice()
    for item in items:
        yield item
        await time_slice.pause_if_over()


async def sliced_map(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return what the function returns for each; others get their turns between them."""
    async with aclosing(sliced(items)) as each:
        return [function(item) async for item in each]


async def in_heavy_thread(function: Callable[[], R]) -> R:
    """Return what the function returns: work that cannot be divided, while the loop gets the interpreter in turns.

    There is one thread for all such work, so that the loop has one rival; one work of each principal waits for it. A
    cancelled caller waits until a function that has begun has ended: it may work on what the caller looks at then.
    """
    async with Turns.of_loop().heavy.setdefault(log_context().principal, asyncio.Lock()):
        job = _heavy_thread().submit(function)
        work = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if not job.cancel():
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
