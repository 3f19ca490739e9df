"""The requests of a page, and the bytes that they take: headers and bodies as they travel, of open streams so far."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Page


class Traffic:
    def __init__(self) -> None:
        self.paths: dict[str, str] = {}  # by request
        self._sizes: dict[str, int] = {}

    @property
    def bytes(self) -> int:
        return sum(self._sizes.values())

    def names(self) -> list[str]:
        """Return the files and routes in order, without the version of the page."""
        return [path.rpartition("/")[2] for path in self.paths.values()]

    def sent(self, event: dict[str, Any]) -> None:
        if not event["request"]["url"].startswith("data:"):
            self.paths[event["requestId"]] = event["request"]["url"]

    def began(self, event: dict[str, Any]) -> None:
        self._sizes[event["requestId"]] = event["response"]["encodedDataLength"]

    def received(self, event: dict[str, Any]) -> None:
        self._sizes[event["requestId"]] = self._sizes.get(event["requestId"], 0) + event["encodedDataLength"]

    def ended(self, event: dict[str, Any]) -> None:
        self._sizes[event["requestId"]] = event["encodedDataLength"]


@asynccontextmanager
async def traffic(page: Page) -> AsyncGenerator[Traffic, None]:
    """What a page fetches from now on."""
    found, session = Traffic(), await page.context.new_cdp_session(page)
    session.on("Network.requestWillBeSent", found.sent)
    session.on("Network.responseReceived", found.began)
    session.on("Network.dataReceived", found.received)
    session.on("Network.loadingFinished", found.ended)
    await session.send("Network.enable")
    yield found
    await session.detach()
