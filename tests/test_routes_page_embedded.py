"""A newcomer's first minute on the page: nothing configured, the embedded model, a command that runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser import browsing, expect, say, shot
from tests.pages import turns
from tests.test_routes_newcomer import ASK, started_server

pytestmark = pytest.mark.usefixtures("chromium")
HELLO = re.compile("hello,? world", re.I)
SLOW_MS = 90_000  # a small machine, and a model that takes all of it


async def test_hello_world_on_the_page_with_the_embedded_model(tmp_path: Path) -> None:
    with started_server(tmp_path) as server:
        async with browsing() as browser:
            page = await browser.page()
            await page.goto(f"http://localhost:{server.port}/")
            await expect(page.get_by_text("tiny").first).to_be_visible()
            await say(page, ASK)
            card = turns(page).locator(".card")
            await expect(card.get_by_text("done").first).to_be_visible(timeout=SLOW_MS)
            await expect(card).to_contain_text(HELLO)
            await expect(turns(page).locator(".answer").last).to_contain_text(re.compile(r"\w"), timeout=SLOW_MS)
            await expect(page.locator("#polite")).to_contain_text("complete", timeout=SLOW_MS)
            await shot(page, "embedded-hello")
