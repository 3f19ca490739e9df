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
    loop = asyncio.get_running_loop()
    arrived = list[asyncio.Task[None] | tuple[int, Item, asyncio.Future[None]]]()
    news = loop.create_future()  # not an asyncio.Queue: each reader of the feed would hold its four deques

    def put(one: asyncio.Task[None] | tuple[int, Item, asyncio.Future[None]]) -> None:
        arrived.append(one)
        if not news.done():
            news.set_result(None)

    async def read(number: int, stream: AsyncGenerator[Item, None]) -> None:
        async with aclosing(stream) as items:
            async for item in items:
                taken = loop.create_future()
                put((number, item, taken))
                await taken

    tasks = [asyncio.create_task(read(number, stream)) for number, stream in enumerate(streams)]
    for task in tasks:
        task.add_done_callback(put)
    left = len(tasks)
    try:
        while left:
            if not arrived:
                news = loop.create_future()
                await news
            match arrived.pop(0):
                case number, item, taken:
                    yield number, item
                    if not taken.done():
                        taken.set_result(None)
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
