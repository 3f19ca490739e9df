"""Apps in the three engines: they run where the browser keeps them offline, and elsewhere a card says why not."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.mcp.faulty_servers import FIXTURES
from tests.support.mcp.served import READS, serving_mcp
from tests.support.page.browser import STORY_S, home
from tests.support.page.engines import ENGINES, engine

RUNS = "document.querySelector('.call-app iframe')?.clientHeight >= 80"
CARD = "document.querySelector('.call-app')?.innerText.includes('cannot keep it off the network')"
# Builds of WebKit differ: one without WebRTC keeps a frame offline.
ENDS = {"chromium": RUNS, "firefox": f"{CARD} && !({RUNS})", "webkit": f"{CARD} || {RUNS}"}


@pytest.mark.anyio
@pytest.mark.parametrize("name", ENGINES)
async def test_an_app_runs_only_where_it_is_offline(tmp_path: Path, name: str) -> None:
    servers: dict[str, object] = {"clock": {"command": sys.executable, "args": [str(FIXTURES / "apps.py")]}}
    script = Scripted(["```mcp__clock__show\n{}\n```", "There it is."])
    async with (
        asyncio.timeout(STORY_S),
        serving_mcp(tmp_path, script, servers, tools=READS) as served,
        engine(name, tmp_path) as browser,
    ):
        session = (await served.chat("Show me the clock."))[0]["session"]
        window = await browser.window()
        await window.goto(f"{home(served)}/#{session}")
        await window.wait_for(ENDS[name])
