"""An ASGI application that is imported and opened with its first request: until then it costs nothing."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from starlette.types import ASGIApp


class LazyApplication:
    """`module` has an async context manager `opened`, which takes what `get` is given and yields the application."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._task: asyncio.Task[None] | None = None
        self._application: ASGIApp | None = None
        self._is_open, self._over = asyncio.Event(), asyncio.Event()

    async def get(self, services: Any) -> ASGIApp:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(services), name=self._module)
        if self._application is None:
            opening = asyncio.create_task(self._is_open.wait())
            await asyncio.wait([self._task, opening], return_when=asyncio.FIRST_COMPLETED)
            opening.cancel()
            if self._task.done():
                self._task.result()
        assert self._application is not None
        return self._application

    async def _run(self, services: Any) -> None:
        """Open and close it in one task, as its cancel scopes require."""
        opened = (await asyncio.to_thread(import_module, self._module)).opened
        async with opened(services) as self._application:
            self._is_open.set()
            await self._over.wait()

    async def aclose(self) -> None:
        self._over.set()
        if self._task:
            await asyncio.wait([self._task])
