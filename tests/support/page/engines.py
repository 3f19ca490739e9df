"""Chromium, Firefox ESR and WebKitGTK behind one small protocol, for tests that hold in all three engines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from playwright.async_api import BrowserContext, Page, async_playwright

from tests.support.page import firefox, webkit
from tests.support.page.chromium import ARGUMENTS, executable
from tests.support.page.engine_parts import LIMIT_S, Waiting

ENGINES = ("chromium", "firefox", "webkit")


class Window(Protocol):
    """A window of its own, visible beside the others."""

    async def goto(self, url: str) -> None:
        """Load the address, and return at its `load` event."""

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression as JSON has it, of a promise once it is resolved."""

    async def wait_for(self, expression: str, limit_s: float = LIMIT_S) -> Any:
        """Return the first value of the expression that is true. Raises TimeoutError, with the last value."""

    async def resize(self, width: int, height: int) -> None:
        """Give the viewport this size in CSS pixels."""

    async def screenshot(self) -> bytes:
        """Return the viewport as PNG."""

    async def close(self) -> None: ...


class Engine(Protocol):
    async def window(self, person: str = "") -> Window:
        """Open a window; windows of one `person` share their storage, which no other has. WebKit has one person."""


@asynccontextmanager
async def engine(name: str, folder: Path) -> AsyncGenerator[Engine, None]:
    """A browser with a profile of its own in `folder`. The test is skipped where the engine is not installed."""
    opened: dict[str, Callable[[Path], AbstractAsyncContextManager[Engine]]] = {
        "chromium": _chromium,
        "firefox": firefox.launched,
        "webkit": webkit.launched,
    }
    async with opened[name](folder) as browser:
        yield browser


class ChromiumWindow(Waiting):
    def __init__(self, page: Page) -> None:
        self.page = page

    async def goto(self, url: str) -> None:
        await self.page.goto(url)

    async def evaluate(self, expression: str) -> Any:
        return await self.page.evaluate(f"() => ({expression})")

    async def resize(self, width: int, height: int) -> None:
        await self.page.set_viewport_size({"width": width, "height": height})

    async def screenshot(self) -> bytes:
        return await self.page.screenshot()

    async def close(self) -> None:
        await self.page.close()


class ChromiumEngine:
    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._contexts: dict[str, BrowserContext] = {}

    async def window(self, person: str = "") -> ChromiumWindow:
        if person not in self._contexts:
            self._contexts[person] = await self._browser.new_context()
        return ChromiumWindow(await self._contexts[person].new_page())


@asynccontextmanager
async def _chromium(_: Path) -> AsyncGenerator[ChromiumEngine, None]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        try:
            yield ChromiumEngine(browser)
        finally:
            await browser.close()
