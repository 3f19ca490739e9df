"""A real Chromium on the page of a server; a test fails by whatever the browser complains of."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, async_playwright, expect

from tests.serving import Served

ROOT = Path(__file__).parent.parent
INSTALLED = ROOT / ".cache/page/node_modules"
SHOTS = ROOT / ".cache/screenshots"  # what people would see, kept after the tests
NAMES = ("chromium", "google-chrome", "chromium-browser")
LIMIT_MS = 15_000
ARGUMENTS = (
    "--no-sandbox",  # whoever runs tests may be root; the page is ours
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}

__all__ = [
    "PHONE",
    "WIDE",
    "Browsing",
    "Locator",
    "Page",
    "browsing",
    "expect",
    "home",
    "needed",
    "say",
    "shot",
    "signed_in",
]


def needed(path: str | Path | None, what: str) -> Path:
    """The path, if it is there. Otherwise the test is skipped and says so; CI skips none."""
    if path is None or not Path(path).exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            f"{what} is not installed: run `make browser`."
        )
    return Path(path)


def chromium() -> Path:
    return needed(next(filter(None, map(shutil.which, NAMES)), None), "chromium")


class Browsing:
    """A browser. `complaints` are errors on its pages' consoles: scripts that broke, what the policy has blocked."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.complaints: list[str] = []
        self.expected: list[str] = []  # patterns of complaints that a test brings about itself

    async def context(self, **options: Any) -> BrowserContext:
        """A person's browser of their own: nothing is shared with other contexts."""
        context = await self.browser.new_context(**({"viewport": WIDE} | options))
        context.set_default_timeout(LIMIT_MS)
        context.on("console", self._heard)
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        return context

    async def page(self, **options: Any) -> Page:
        return await (await self.context(**options)).new_page()

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def check(self) -> None:
        left = [one for one in self.complaints if not any(re.search(pattern, one) for pattern in self.expected)]
        assert not left, left


@asynccontextmanager
async def browsing() -> AsyncGenerator[Browsing, None]:
    """A browser for one test. In the end whatever it complained of fails the test."""
    expect.set_options(timeout=LIMIT_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        found = Browsing(browser)
        try:
            yield found
        finally:
            await browser.close()
        found.check()


def home(served: Served) -> str:
    return str(served.client.base_url)


async def signed_in(page: Page, served: Served, token: str) -> None:
    """The page of somebody who signs in with this token; being asked for it is a 401 on the console."""
    await page.goto(home(served))
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("textbox", name="Message")).to_be_visible()


async def say(page: Page, words: str) -> None:
    """Write a message and send it."""
    await page.get_by_role("textbox", name="Message").fill(words)
    await page.get_by_role("button", name="Send").click()


async def shot(page: Page, name: str) -> Path:
    """A picture of the page as it is, for people to look at: `.cache/screenshots/NAME.png`, and where CI keeps what
    was made (DRAGOMAN_ARTEFACTS)."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    path = SHOTS / f"{name}.png"
    await page.screenshot(path=path)
    keep(path)
    return path


def keep(path: Path) -> None:
    if artefacts := os.environ.get("DRAGOMAN_ARTEFACTS"):
        kept = Path(artefacts, "screenshots")
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, kept)
