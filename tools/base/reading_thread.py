"""A thread for short reads of files that every request needs.

The event loop must not wait for a disk. `asyncio.to_thread` copies the context, chains two futures and shares its
threads with work that takes seconds; a read of a few files needs none of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
MOST = 2  # threads


async def read_in_thread(function: Callable[[T], R], argument: T) -> R:
    """Return what the function returns; raises what it raises."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[R] = loop.create_future()
    _threads().submit(function, argument).add_done_callback(partial(_pass_on, loop, waiting))
    return await waiting


@lru_cache(1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST, "reads")


def _pass_on(loop: asyncio.AbstractEventLoop, waiting: asyncio.Future[Any], read: Future[Any]) -> None:
    with suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(_settle, waiting, read)


def _settle(waiting: asyncio.Future[Any], read: Future[Any]) -> None:
    if waiting.done():  # its caller was cancelled
        return
    if error := read.exception():
        waiting.set_exception(error)
    else:
        waiting.set_result(read.result())
