"""Several streams read concurrently and merged into item."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

Item = TypeVar("Item")


async def merge_streams(streams: Sequence[AsyncGenerator[Item, None]]) -> AsyncGenerator[tuple[int, Item], None]:
    """Yield the items of all streams as they come, each with the number of its stream.

    A stream proceeds once its item has been taken, so that nothing is buffered. The first that fails ends
    the others. However this generator ends, all streams are closed and no task is left.
    """
    queue: asyncio.Queue[asyncio.Task[None] | tuple[int, Item, asyncio.Event]] = asyncio.Queue()

    async def read(number: int, stream: AsyncGenerator[Item, None]) -> None:
        async with aclosing(stream) as items:
            async for item in items:
                taken = asyncio.Event()
                queue.put_nowait((number, item, taken))
                await taken.wait()

    tasks = [asyncio.create_task(read(number, stream)) for number, stream in enumerate(streams)]
    for task in tasks:
        task.add_done_callback(queue.put_nowait)
    left = len(tasks)
    try:
        while left:
            match await queue.get():
                case number, item, taken:
                    yield number, item
                    taken.set()
                case asyncio.Task() as ended:
                    left -= 1
                    ended.result()
    finally:
        await _all_ended(tasks)


async def _all_ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen: what counts is the first
