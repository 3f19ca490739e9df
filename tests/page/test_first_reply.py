"""The page in a real browser: what is said streams in, and what is called shows as a card."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import DEMO, Scripted
from tests.support.page.browser import browsing, expect, home, say, shot
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")


async def test_a_turn_shows_the_words_the_call_and_the_answer(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(DEMO, repeat=True)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Print hello world with the shell.")
        turn = page.get_by_role("article", name="Run")
        await expect(turn.get_by_text("Print hello world with the shell.")).to_be_visible()
        await expect(turn.get_by_text("The shell printed Hello, World!")).to_be_visible()
        await expect(turn.locator(".card")).to_have_count(1)
        await page.reload()
        await expect(turn.get_by_text("The shell printed Hello, World!")).to_be_visible()
        await shot(page, "turn")
