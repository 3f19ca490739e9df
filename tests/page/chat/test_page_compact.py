"""`/compact` in the page and in the terminal: the summary is asked for, and shown as those that the server makes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.page.browser import STORY_S, browsing, expect, home, shot
from tests.support.server.long_conversations import Secretary, chat_turns
from tests.support.server.serving import serving
from tests.support.terminal.terminals import terminal

pytestmark = pytest.mark.usefixtures("chromium")


async def test_the_page_has_the_conversation_summarised(tmp_path: Path) -> None:
    async with serving(tmp_path, Secretary()) as served, browsing() as browser:
        session = (await chat_turns(served, 4))[0][0]["session"]
        page = await browser.page()
        await page.goto(f"{home(served)}/#{session}")
        box = page.get_by_role("textbox", name="Message")
        await expect(page.get_by_text("Answer 4.")).to_be_visible()
        await box.fill("/compact")
        await box.press("Enter")
        note = page.get_by_text("The first 4 messages were summarised to save context.", exact=True)
        await expect(note).to_be_visible()
        await note.click()
        await expect(page.get_by_text("letters were sorted")).to_be_visible()
        await shot(page, "compact")
        await box.fill("/new")
        await box.press("Enter")
        await box.fill("/compact")
        await box.press("Enter")
        await expect(page.get_by_text("This conversation is still empty.")).to_have_count(1)


async def test_the_terminal_has_the_conversation_summarised(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), serving(tmp_path, Secretary()) as served:
        await chat_turns(served, 4)
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with("\n>")
            shown.press("/compact\r")
            await shown.until("There is no conversation to summarise yet.")
            await shown.press_until("/resume\r", "❯ ")
            shown.press("\r")
            await shown.until("Continuing: ")
            await shown.ends_with("\n>")
            shown.press("/compact\r")
            await shown.until("The first 4 messages were summarised to save context:")
