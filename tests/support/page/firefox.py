"""Firefox ESR without a display, driven by WebDriver BiDi (https://www.w3.org/TR/webdriver-bidi/)."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.page.chromium import needed
from tests.support.page.engine_parts import LIMIT_S, Waiting, program
from tests.support.page.websocket import WebSocket

LISTENING = "WebDriver BiDi listening on ws://127.0.0.1:"
NAMES = ("firefox-esr", "firefox")
PREFERENCES = {
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "browser.tabs.unloadOnLowMemory": False,
    "app.update.auto": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "services.settings.server": "http://127.0.0.1:1/",
    "extensions.systemAddon.update.enabled": False,
    "toolkit.telemetry.server": "",
    "intl.accept_languages": "en-US, en",
    "dom.ipc.processCount": 2,
    "fission.autostart": False,
}


class Bidi:
    """Commands over one WebSocket, answered in any order."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._waiting[number] = answer = asyncio.get_running_loop().create_future()
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        message = await answer
        if message["type"] == "error":
            raise RuntimeError(f"{method}: {message['error']}: {message['message']}")
        result: dict[str, Any] = message["result"]
        return result

    async def read(self) -> None:
        try:
            while True:
                message = json.loads(await self._socket.receive())
                if waiting := self._waiting.pop(message.get("id"), None):
                    waiting.set_result(message)
        except EOFError as ended:
            for waiting in self._waiting.values():
                waiting.set_exception(ConnectionError(f"Firefox has ended: {ended}"))


class FirefoxWindow(Waiting):
    def __init__(self, bidi: Bidi, context: str) -> None:
        self._bidi, self._context = bidi, context

    async def goto(self, url: str) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self._bidi.send("browsingContext.navigate", context=self._context, url=url, wait="complete")

    async def evaluate(self, expression: str) -> Any:
        answer = await self._bidi.send(
            "script.evaluate",
            expression=f"(async () => JSON.stringify((await ({expression})) ?? null))()",
            target={"context": self._context},
            awaitPromise=True,
            userActivation=True,
        )
        if answer["type"] == "exception":
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    async def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height}
        await self._bidi.send("browsingContext.setViewport", context=self._context, viewport=size)

    async def screenshot(self) -> bytes:
        answer = await self._bidi.send("browsingContext.captureScreenshot", context=self._context)
        return base64.b64decode(answer["data"])

    async def close(self) -> None:
        await self._bidi.send("browsingContext.close", context=self._context)


class FirefoxEngine:
    def __init__(self, bidi: Bidi) -> None:
        self._bidi = bidi
        self._people = {"": "default"}

    async def window(self, person: str = "") -> FirefoxWindow:
        if person not in self._people:
            self._people[person] = (await self._bidi.send("browser.createUserContext"))["userContext"]
        made = await self._bidi.send("browsingContext.create", type="window", userContext=self._people[person])
        return FirefoxWindow(self._bidi, made["context"])


@asynccontextmanager
async def launched(folder: Path) -> AsyncGenerator[FirefoxEngine, None]:
    path = needed(next(filter(None, map(shutil.which, NAMES)), None), "Firefox")
    profile = folder / "firefox"
    profile.mkdir()
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items()]
    (profile / "user.js").write_text("\n".join(lines))
    command = (str(path), "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port=0")
    async with program(*command, stdout=DEVNULL, stderr=PIPE) as process:
        socket = await WebSocket.connect(await _port(process), "/session")
        bidi = Bidi(socket)
        reading = asyncio.create_task(bidi.read())
        draining = asyncio.create_task(_drained(process))
        try:
            await bidi.send("session.new", capabilities={})
            yield FirefoxEngine(bidi)
        finally:
            socket.close()
            for task in (reading, draining):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def _port(process: asyncio.subprocess.Process) -> int:
    assert process.stderr
    async with asyncio.timeout(LIMIT_S):
        async for line in process.stderr:
            _, found, port = line.decode(errors="replace").partition(LISTENING)
            if found:
                return int(port)
    raise ConnectionError("Firefox ended before it listened")


async def _drained(process: asyncio.subprocess.Process) -> None:
    assert process.stderr
    while await process.stderr.read(65_536):
        pass
