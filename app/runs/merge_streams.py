"""Several streams read at once, told as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

Item = TypeVar("Item")


async def merge_streams(streams: Sequence[AsyncGenerator[Item, None]]) -> AsyncGenerator[tuple[int, Item], None]:
    """What the streams tell as it comes, each time with the number of the stream.

    A stream goes on once what it told has been taken, as if it were read alone: so nothing piles up. The first that
    fails ends the others. However this generator ends, all streams are closed and no task is left.
    """
    told: asyncio.Queue[asyncio.Task[None] | tuple[int, Item, asyncio.Event]] = asyncio.Queue()

    async def read(number: int, stream: AsyncGenerator[Item, None]) -> None:
        async with aclosing(stream) as news:
            async for one in news:
                taken = asyncio.Event()
                told.put_nowait((number, one, taken))
                await taken.wait()

    tasks = [asyncio.create_task(read(number, stream)) for number, stream in enumerate(streams)]
    for task in tasks:
        task.add_done_callback(told.put_nowait)
    left = len(tasks)
    try:
        while left:
            match await told.get():
                case number, one, taken:
                    yield number, one
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
