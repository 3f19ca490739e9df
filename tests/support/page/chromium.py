"""One Chromium for all tests of a worker, and the event loop that it lives on: a start costs more than most tests."""

from __future__ import annotations

import asyncio
import os
import shutil
from asyncio import Task
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, async_playwright

# The shell has no windows, and a page of it takes a quarter of the processor's time.
NAMES = ("chromium-headless-shell", "chromium", "google-chrome", "chromium-browser")
ARGUMENTS = (
    "--no-sandbox",  # whoever runs tests may be root; the page is ours
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-smooth-scrolling",  # else a test reads a place on the way
)
BROWSER: ContextVar[Browser] = ContextVar("BROWSER")


def needed(path: str | Path | None, what: str) -> Path:
    """The path, if it is there. Otherwise the test is skipped and says so; CI skips none."""
    if path is None or not Path(path).exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            f"{what} is not installed: run `make browser`."
        )
    return Path(path)


def executable() -> Path:
    return needed(next(filter(None, map(shutil.which, NAMES)), None), "chromium")


@asynccontextmanager
async def launched() -> AsyncGenerator[Browser, None]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        BROWSER.set(browser)
        try:
            yield browser
        finally:
            await browser.close()


class Chromium:
    """Runs tests one after the other on one loop, each as if the loop were its own. Use `chromium` to make one."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._stack = AsyncExitStack()
        self._browser: Browser | None = None
        self._own: set[Task[Any]] = set()  # what the browser's connection needs
        self._raised: list[Exception] = []

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        """What the test leaves under way ends with it, and what breaks there fails it, as with a loop of its own."""
        self._raised.clear()
        self._runner.get_loop().set_exception_handler(self._on_exception)
        self._runner.run(self._run(test))
        if self._raised:
            raise ExceptionGroup("what the test left to the loop", self._raised)

    async def _run(self, test: Coroutine[Any, Any, None]) -> None:
        await self._end_others()  # of a test that ran out of time
        if not self._browser or not self._browser.is_connected():
            self._browser = await self._stack.enter_async_context(launched())
            self._own = asyncio.all_tasks()
        BROWSER.set(self._browser)
        try:
            await test
        finally:
            await self._end_others()

    async def _end_others(self) -> None:
        left = asyncio.all_tasks() - self._own - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(raised := context.get("exception"), Exception):
            self._raised.append(raised)
        else:
            loop.default_exception_handler(context)

    def close(self) -> None:
        self._runner.run(self._stack.aclose())


@contextmanager
def chromium() -> Generator[Chromium, None, None]:
    with asyncio.Runner() as runner:
        made = Chromium(runner)
        try:
            yield made
        finally:
            made.close()
