"""A real Chromium on the page of a server; a test fails by whatever the browser complains of."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Route, ViewportSize, expect

from tests import ROOT
from tests.support.nightly import NIGHTLY, at_night
from tests.support.page.chromium import BROWSER, needed
from tests.support.server.serving import Served

INSTALLED = ROOT / ".cache/page/node_modules"
SHOTS = ROOT / ".cache/screenshots"  # what people would see, kept after the nights
# Both end only a test that is broken: a busy machine may take its time. Each is less than what pytest gives a test.
LIMIT_MS, STORY_S = at_night(90_000, 30_000), 110
REFUSED_PROBE = "net::ERR_NETWORK_ACCESS_REVOKED"  # the first preview shows that the browser keeps it offline
NARROW = {"width": 1000, "height": 800}  # previews stand in the conversation
WIDE, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=844)

__all__ = [
    "NARROW",
    "PHONE",
    "REFUSED_PROBE",
    "STORY_S",
    "WIDE",
    "Browsing",
    "Locator",
    "Page",
    "browsing",
    "choose",
    "cpu_ms",
    "expect",
    "held_back",
    "home",
    "needed",
    "open_settings",
    "say",
    "shot",
    "signed_in",
]


@asynccontextmanager
async def held_back(page: Page, path: str) -> AsyncGenerator[None, None]:
    """Nothing of that path is answered inside."""
    answered = asyncio.Event()

    async def wait(route: Route) -> None:
        await answered.wait()
        await route.continue_()

    await page.route(path, wait)
    try:
        yield
    finally:
        answered.set()


class Browsing:
    """A browser. `complaints` are errors on its pages' consoles: scripts that broke, what the policy has blocked."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.contexts: list[BrowserContext] = []
        self.complaints: list[str] = []
        self.expected: list[str] = []  # patterns of complaints that a test brings about itself

    async def context(self, **options: Any) -> BrowserContext:
        """A person's browser of their own: nothing is shared with other contexts."""
        context = await self.browser.new_context(**({"viewport": WIDE} | options))
        self.contexts.append(context)
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


async def cpu_ms(page: Page, script: str, argument: Any = None) -> tuple[Any, float]:
    """Return what a script returns, and the milliseconds of the processor that the page's thread has taken for it."""
    measuring = await page.context.new_cdp_session(page)
    await measuring.send("Performance.enable")

    async def so_far() -> float:
        metrics = (await measuring.send("Performance.getMetrics"))["metrics"]
        return next(float(one["value"]) for one in metrics if one["name"] == "ThreadTime")

    before = await so_far()
    value = await page.evaluate(script, argument)
    took_s = await so_far() - before
    await measuring.detach()
    return value, took_s * 1000


@asynccontextmanager
async def browsing() -> AsyncGenerator[Browsing, None]:
    """The worker's browser for one test, which has contexts of its own. In the end whatever it complained of fails it.

    The test asks for the fixture `chromium`."""
    expect.set_options(timeout=LIMIT_MS)
    found = Browsing(BROWSER.get())
    try:
        yield found
    finally:
        for context in found.contexts:
            await context.close()
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


async def choose(page: Page, name: str) -> None:
    """Choose a row of the status bar's menu."""
    await page.get_by_role("group", name="Status").get_by_role("button", name="Menu").click()
    await page.get_by_role("menuitem", name=name).click()


async def open_settings(page: Page) -> None:
    """Open the settings, whose button is in the drawer of a phone."""
    drawer = page.get_by_role("button", name="Conversations")
    if await drawer.is_visible():
        await drawer.click()
    await page.get_by_role("button", name="Settings").click()


async def shot(page: Page, name: str) -> None:
    """A picture of the page as it is, for people to look at: at night `.cache/screenshots/NAME.png`, and by day too
    where CI keeps what was made (DRAGOMAN_ARTEFACTS)."""
    artefacts = os.environ.get("DRAGOMAN_ARTEFACTS")
    for folder in (Path(artefacts, "screenshots") if artefacts else None, SHOTS if NIGHTLY else None):
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            await page.screenshot(path=folder / f"{name}.png")
