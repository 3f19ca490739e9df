"""Windows of one browser, each at a conversation of its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from tests.support.page.engines import Window
from tests.support.server.feeding import begin
from tests.support.server.serving import Served

# As in browsers without shared workers: the page's connection is one of its own, which Playwright can see and change.
ALONE = "delete globalThis.SharedWorker"
OPEN = "document.querySelector('.status-link')?.dataset.state === 'open'"


def shows(words: str) -> str:
    return f"document.querySelector('#conversation').innerText.includes({words!r})"


async def opened(window: Window, url: str, session: str, token: str = "") -> Window:
    """The window at a session, signed in with a token if there is one, once it follows the session."""
    if token:
        await window.goto(f"{url}/page/page.css")  # any file of the page has its storage
        await window.evaluate(f"sessionStorage.setItem('dragoman.token', {token!r})")
    await window.goto(f"{url}/#{session}")
    await window.wait_for(OPEN)
    return window


async def check_each_follows_its_own(served: Served, windows: Sequence[Window], sessions: Sequence[str]) -> None:
    """Begin a run in each session, whose window alone must show it while it goes."""
    for number, session in enumerate(sessions):
        await begin(served, f"question {number}.", session)
    for number, window in enumerate(windows):
        await window.wait_for(shows(f"question {number}."))
        text = await window.evaluate("document.querySelector('#conversation').innerText")
        assert re.findall(r"question \d+\.", text) == [f"question {number}."]


async def until_streams(served: Served, principal: str, most: int) -> None:
    """Wait until not more than `most` streams of a principal are open."""
    presence = served.services.presence
    while presence.streams(principal) > most:
        leaving = [asyncio.create_task(place.wait_left()) for place in presence._places[principal]]
        await asyncio.wait(leaving, return_when=asyncio.FIRST_COMPLETED)
        for task in leaving:
            task.cancel()
