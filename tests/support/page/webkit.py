"""WebKitGTK's MiniBrowser on a display in memory, driven by WebDriver (https://www.w3.org/TR/webdriver2/)."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.support.page.chromium import needed
from tests.support.page.engine_parts import LIMIT_S, Waiting, program
from tests.support.replicas.nginx import free_port
from tests.support.server.listening import listens

SCREEN = "2000x1400x24"
# Else its toolbar is wider than a phone.
STYLE = "* { min-width: 0; min-height: 0; margin: 0; border: 0; padding: 0; }"
EVALUATE = """
const answer = arguments[arguments.length - 1];
(async () => JSON.stringify((await (%s)) ?? null))().then(
  (text) => answer({ text }), (error) => answer({ error: String(error) }));
"""


class Driver:
    """Commands of one session. Each is for the current window: they take turns."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._path = "/session"
        self._turn = asyncio.Lock()
        self._current = ""

    async def begin(self) -> None:
        browser = {"binary": str(_browser()), "args": ["--automation"]}
        timeouts = {"script": 120_000, "pageLoad": int(LIMIT_S * 1000)}
        wanted = {"webkitgtk:browserOptions": browser, "timeouts": timeouts}
        made = await self.send("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self._path += f"/{made['sessionId']}"
        self._current = await self.send("GET", "/window")

    async def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        response = await self._client.request(method, self._path + path, json=body)
        value = response.json()["value"]
        if response.is_error:
            raise RuntimeError(f"{method} {path}: {value['error']}: {value['message']}")
        return value

    async def send_to(self, window: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        async with self._turn:
            if self._current != window:
                await self.send("POST", "/window", {"handle": window})
                self._current = window
            return await self.send(method, path, body)


class WebKitWindow(Waiting):
    def __init__(self, driver: Driver, handle: str) -> None:
        self._driver, self._handle = driver, handle

    async def goto(self, url: str) -> None:
        await self._driver.send_to(self._handle, "POST", "/url", {"url": url})

    async def evaluate(self, expression: str) -> Any:
        body = {"script": EVALUATE % expression, "args": []}
        answer = await self._driver.send_to(self._handle, "POST", "/execute/async", body)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return json.loads(answer["text"])

    async def resize(self, width: int, height: int) -> None:
        # Both sizes may be those of a moment ago; what lies between them, the toolbar, is the same.
        across, down = await self.evaluate("[outerWidth - innerWidth, outerHeight - innerHeight]")
        rect = {"width": width + across, "height": height + down}
        await self._driver.send_to(self._handle, "POST", "/window/rect", rect)
        await self.wait_for(f"innerWidth === {width} && innerHeight === {height}")

    async def screenshot(self) -> bytes:
        return base64.b64decode(await self._driver.send_to(self._handle, "GET", "/screenshot"))

    async def close(self) -> None:
        await self._driver.send_to(self._handle, "DELETE", "/window")


class WebKitEngine:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def window(self, person: str = "") -> WebKitWindow:
        assert not person, "a driver's session is one person"
        made = await self._driver.send("POST", "/window/new", {"type": "window"})
        return WebKitWindow(self._driver, made["handle"])


def _browser() -> Path:
    found = sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
    return needed(found[-1] if found else None, "WebKitGTK's MiniBrowser")


@asynccontextmanager
async def launched(folder: Path) -> AsyncGenerator[WebKitEngine, None]:
    driver = needed(shutil.which("WebKitWebDriver"), "WebKitWebDriver")
    needed(shutil.which("Xvfb"), "Xvfb")
    home = folder / "webkit"
    (home / ".config/gtk-3.0").mkdir(parents=True)
    (home / ".config/gtk-3.0/gtk.css").write_text(STYLE)
    async with _display() as display:
        port = free_port()
        env = os.environ | {"DISPLAY": display, "HOME": str(home), "GDK_BACKEND": "x11", "NO_AT_BRIDGE": "1"}
        env |= {"XDG_CONFIG_HOME": str(home / ".config"), "LANGUAGE": "en"}
        async with (
            program(str(driver), f"--port={port}", env=env, stdout=DEVNULL, stderr=DEVNULL) as process,
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=150) as client,
        ):
            async with asyncio.timeout(LIMIT_S):
                if not await listens(process, port):
                    raise ConnectionError("WebKitWebDriver ended before it listened")
            session = Driver(client)
            await session.begin()
            try:
                yield WebKitEngine(session)
            finally:
                await session.send("DELETE", "")


@asynccontextmanager
async def _display() -> AsyncGenerator[str, None]:
    number, display_end = os.pipe()
    try:
        command = ("Xvfb", "-displayfd", str(display_end), "-screen", "0", SCREEN, "-nolisten", "tcp")
        async with program(*command, pass_fds=(display_end,), stdout=DEVNULL, stderr=DEVNULL):
            async with asyncio.timeout(LIMIT_S):
                display = (await asyncio.to_thread(os.read, number, 16)).decode().strip()
            yield f":{display}"
    finally:
        os.close(number)
        os.close(display_end)
