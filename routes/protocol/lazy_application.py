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
        self._opened = asyncio.Queue[ASGIApp](1)
        self._over = asyncio.Event()

    async def get(self, services: Any) -> ASGIApp:
        self._task = self._task or asyncio.create_task(self._run(services), name=self._module)
        application = await self._opened.get()
        self._opened.put_nowait(application)
        return application

    async def _run(self, services: Any) -> None:
        """Open and close it in one task, as its cancel scopes require."""
        async with (await asyncio.to_thread(import_module, self._module)).opened(services) as application:
            self._opened.put_nowait(application)
            await self._over.wait()

    async def aclose(self) -> None:
        self._over.set()
        if self._task:
            await asyncio.wait([self._task])
