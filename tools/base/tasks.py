"""Work beside other work: concurrent awaitables, each awaited to its end, and tasks in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from threading import Lock
from typing import Any

_alone = Lock()
_imported = set[str]()  # whole: a module is in `sys.modules` while another thread imports it


async def import_in_thread(module: str) -> Any:
    """Import a module without holding the event loop, one at a time: threads that enter a circle at two places fail."""
    if module not in _imported:
        await asyncio.to_thread(alone, import_module, module)
        _imported.add(module)
    return import_module(module)


def alone(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do work that needs to be done once, while no other thread does such work."""
    with _alone:
        return work(*arguments)


async def gather_all(work: Iterable[Awaitable[object]]) -> None:
    """Await all; raise the failures as one group once none is running."""
    results = await asyncio.gather(*work, return_exceptions=True)
    if wrong := [result for result in results if isinstance(result, BaseException)]:
        raise BaseExceptionGroup("some of the concurrent tasks failed", wrong)


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None], name: str) -> AsyncGenerator[None, None]:
    """Run `work` as a task while this is open. At the end it is cancelled, and has ended when this returns."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


class LeanEvent(asyncio.Event):
    """An event whose waiters are a list: the deque of asyncio's takes 600 bytes."""

    def __init__(self, *, is_set: bool = False) -> None:
        self._waiters: Any = []
        self._value = is_set


async def wait_at_most(seconds: float | None, event: asyncio.Event) -> None:
    """Wait until the event is set, or the time is over; None is no limit."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def retrieve(task: asyncio.Future[Any]) -> None:
    """Look at how a task has ended, so that asyncio does not warn of a failure."""
    if not task.cancelled():
        task.exception()
