"""Ctrl-C in the terminal client: what it stops, and when it leaves."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import httpx2
import pytest
from rich.console import Console

from app.core.events import ToolFinished, ToolStarted
from routes.terminal.chat import alone, client_of
from routes.terminal.event_client import Choices, Link
from routes.terminal.interrupts import Interrupts, Left
from routes.terminal.screen import Screen
from routes.terminal.view import View


def interrupted(
    times: int, run: str | None, status: int = 200, *, patient: bool = True
) -> tuple[list[str], str, BaseException | None]:
    """Ctrl-C so many times in a turn that would last: what the server was asked, what is shown, what ends the turn."""
    asked: list[str] = []
    out = io.StringIO()

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(f"{request.method} {request.url.path}")
        return httpx2.Response(status)

    async def turn() -> None:
        transport = httpx2.MockTransport(answer)
        async with httpx2.AsyncClient(base_url="http://server", transport=transport) as client, asyncio.timeout(30):
            link, screen = Link(client, Choices()), Screen(Console(file=out), View(summary=False))
            link.run = run
            press = Interrupts(link, screen.show)
            press.turn = asyncio.current_task()
            try:
                for _ in range(times):
                    press()
                    for _ in range(100 if patient else 0):
                        await asyncio.sleep(0)
                await asyncio.sleep(0)
            finally:
                await press.settle(2.0)

    try:
        asyncio.run(turn())
    except (asyncio.CancelledError, Left) as ending:
        return asked, out.getvalue(), ending
    return asked, out.getvalue(), None


STOPPING = "! Stopping the run. Press Ctrl-C again to leave.\n"


def test_the_first_interrupt_stops_the_run() -> None:
    assert interrupted(1, "r1") == (["POST /runs/r1/cancel"], STOPPING, None)


@pytest.mark.parametrize("patient", [True, False], ids=["later", "at once"])
def test_the_second_leaves_and_the_run_is_stopped_all_the_same(patient: bool) -> None:
    asked, shown, ending = interrupted(2, "r1", patient=patient)
    assert (asked, shown) == (["POST /runs/r1/cancel"], STOPPING)
    assert isinstance(ending, Left)


async def _key_for_a_call(running: list[str], status: int) -> tuple[list[str], str]:
    asked: list[str] = []
    out = io.StringIO()

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(f"{request.method} {request.url.raw_path.decode()}")
        return httpx2.Response(status)

    transport = httpx2.MockTransport(answer)
    async with httpx2.AsyncClient(base_url="http://server", transport=transport) as client, asyncio.timeout(30):
        link, screen = Link(client, Choices()), Screen(Console(file=out), View(summary=False))
        link.run = "r1"
        for call in running:
            link._follow(ToolStarted(call, "bash", {}, "native"))
        press = Interrupts(link, screen.show)
        press.stop_call()
        press.stop_call()  # while the first is on its way
        if press._stopping:
            await press._stopping
        link._follow(ToolFinished(running[-1], "bash", False, "", 1.0)) if running else None
        assert [*link.running] == running[:-1]
    return asked, out.getvalue().replace("\n", " ")


def test_another_key_stops_the_latest_call_alone() -> None:
    asked, shown = asyncio.run(_key_for_a_call(["c1", "c/2"], 200))
    assert asked == ["POST /runs/r1/calls/c%2F2/cancel"] and shown == "! Stopping the call. Ctrl-C stops the run. "
    assert asyncio.run(_key_for_a_call([], 200)) == ([], "")
    assert "The call could not be stopped: The server answered 404." in asyncio.run(_key_for_a_call(["c1"], 404))[1]


def test_without_a_run_there_is_nothing_to_stop() -> None:
    asked, shown, ending = interrupted(1, None)
    assert (asked, shown) == ([], "")
    assert isinstance(ending, Left)


def test_a_run_that_cannot_be_stopped_is_told() -> None:
    assert "! The run could not be stopped: The server answered 404." in interrupted(1, "r1", 404)[1].replace("\n", " ")


class Impatient(io.StringIO):
    """The terminal of a user who presses Ctrl-C on reading the first words, and again on reading of the stop."""

    def write(self, text: str) -> int:
        if "Hello" in text or "Stopping" in text:
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


class Endless(BaseHTTPRequestHandler):
    """A server whose runs last until the client leaves."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        for name, value in (("Content-Type", "text/event-stream"), ("X-Run-Id", "r1"), ("X-Session-Id", "s1")):
            self.send_header(name, value)
        self.end_headers()
        if self.path == "/chat":
            self.wfile.write(b'id: 1\nevent: text.delta\ndata: {"type": "text.delta", "text": "Hello"}\n\n')
            self.rfile.read(int(self.headers["Content-Length"]) + 1)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the test's output is the client's."""


async def ask(url: str) -> int:
    async with client_of(url, None) as client:
        return await alone(client, Choices(), "hi")


def test_two_interrupts_leave_the_conversation_and_stop_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Impatient())
    monkeypatch.setattr(Endless, "asked", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            with pytest.raises(Left):
                asyncio.run(ask(f"http://127.0.0.1:{server.server_port}"))
        finally:
            server.shutdown()
            thread.join(10)
    assert Endless.asked == ["/chat", "/runs/r1/cancel"]
