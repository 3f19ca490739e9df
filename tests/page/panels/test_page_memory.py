"""The memory in the page's settings: seen, searched, added, edited and deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.memory.memories import Source
from app.models.scripted import Scripted
from tests.support.page.browser import STORY_S, browsing, expect, home
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")
MARKUP = "<img src=x onerror=alert(1)> is a picture."


async def test_the_person_sees_searches_edits_and_deletes_memories(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted([]), memory=True) as served, browsing() as browser:
        memories = served.services.factory.memories
        memories.embedder = None  # by meaning, "7" is like other numbers
        for number in range(21):
            await memories.remember("local", f"Number {number}", "fact", Source())
        await memories.remember("local", MARKUP, "note", Source("model", "ses_1", "run_1", 0, untrusted=True))
        await memories.remember("bob", "A stranger's", "fact", Source())
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("button", name="Settings").click()
        await page.get_by_text("Memory", exact=True).click()
        rows = page.get_by_role("list", name="Memories").get_by_role("listitem")
        await expect(rows).to_have_count(20)
        await expect(page.get_by_text("22 memories")).to_be_visible()
        await expect(page.get_by_text("Memory is off")).to_have_count(0)
        await expect(rows.first).to_contain_text(MARKUP)
        await expect(rows.first).to_contain_text("note")
        await page.get_by_role("button", name=f"Confirm: {MARKUP}").click()
        await expect(rows.first).not_to_contain_text("untrusted")
        await page.get_by_role("button", name="Show more").click()
        await expect(rows).to_have_count(22)

        await page.get_by_label("Search memories").fill("7")
        await page.get_by_role("button", name="Search", exact=True).click()
        await expect(rows).to_have_count(1)
        await page.get_by_role("button", name="Edit: Number 7").click()
        await page.get_by_label("Text", exact=True).fill("Seven")
        await page.get_by_role("button", name="Save", exact=True).click()
        await expect(rows).to_contain_text("No memory matches these words.")
        await page.get_by_label("Search memories").fill("seven")
        await page.get_by_role("button", name="Search", exact=True).click()
        await rows.get_by_role("button", name="Delete", exact=True).click()
        await rows.get_by_role("button", name="Delete it").click()
        await expect(rows).to_contain_text("No memory matches these words.")
        await page.get_by_label("Search memories").fill("")
        await page.get_by_label("New memory").fill("Likes tea")
        await page.get_by_role("button", name="Remember this").click()
        await expect(rows.first).to_contain_text("Likes tea")
        await page.get_by_role("button", name="Delete all").click()
        await page.get_by_role("button", name="Delete them").click()
        await expect(rows).to_have_text(["No memories yet."])
        assert await served.services.store.memory_count("bob") == 1
