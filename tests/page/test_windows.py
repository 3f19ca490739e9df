"""Windows side by side in each engine, on plain HTTP: each shows its own conversation, over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.models.scripted import Line, Pause, Scripted
from tests.support.access.people import bearer, port_of
from tests.support.nightly import at_night
from tests.support.page.browser import STORY_S
from tests.support.page.engines import ENGINES, engine
from tests.support.page.windows import check_each_follows_its_own, opened, shows, until_streams
from tests.support.page.wire import own_address, wired
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

COUNT = at_night(7, 3)  # by day as many as show what they share; test_shared_feed.py has more in Chromium


@pytest.mark.parametrize("name", ENGINES)
async def test_windows_side_by_side_share_a_connection_and_each_follows_its_own(tmp_path: Path, name: str) -> None:
    count, go_on = COUNT, asyncio.Event()
    replies: list[Sequence[Line]] = [["Old."]] * count + [["Begun. ", Pause(go_on), "Live."]] * count
    async with (
        asyncio.timeout(STORY_S),
        serving(tmp_path, Scripted(replies)) as served,
        wired(port_of(served), own_address()) as wire,
        engine(name, tmp_path) as browser,
    ):
        served.client.headers.update(await bearer(served, "ann"))
        token = served.client.headers["authorization"].split()[1]
        sessions = [(await served.chat("Hello"))[0]["session"] for _ in range(count)]
        windows = [await opened(await browser.window(), wire.url, session, token) for session in sessions]
        await until_streams(served, "ann", 1)
        await check_each_follows_its_own(served, windows, sessions)
        for window in windows:
            await window.wait_for(shows("Begun."))
        go_on.set()
        for window in windows:
            await window.wait_for(shows("Live."))
        assert served.services.presence.streams("ann") == 1
        for window in windows[1:]:
            await window.close()
        assert served.services.presence.streams("ann") == 1
