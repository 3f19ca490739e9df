"""Modes of a conversation on the page: chosen before the first message, shown in the bar, ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.page.browser import browsing, expect, home, say
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")


async def test_modes_are_chosen_shown_and_ended(tmp_path: Path) -> None:
    async with serving(tmp_path, model := Scripted(["Done."], repeat=True)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        panel, bar = page.locator("#panel"), page.locator("#topbar")
        await page.get_by_role("button", name="Conversation options").click()
        await panel.get_by_label("Temporary").check()
        await panel.get_by_label("Read-only").check()
        await panel.get_by_label("Folder").fill("new")
        await panel.get_by_role("button", name="Save", exact=True).click()
        await expect(bar).to_contain_text("Temporary")
        await page.keyboard.press("Escape")
        await say(page, "Look around")
        await expect(page.locator("#conversation").get_by_text("Done.")).to_be_visible()
        await expect(bar).to_contain_text("Folder: conversations/temporary-")
        assert (await served.client.get("/sessions")).json()["sessions"] == []
        assert "Markdown" in model.requests[0].opening()[0].text, "the model knows where its answer is read"

        await page.reload()
        await expect(bar).to_contain_text("Read-only")
        await page.get_by_role("button", name="Conversation options").click()
        await expect(panel.get_by_label("Temporary")).to_be_disabled()
        await panel.get_by_label("Read-only").uncheck()
        await panel.get_by_role("button", name="Save", exact=True).click()
        await expect(bar).not_to_contain_text("Read-only")
        await panel.get_by_role("button", name="Delete it now").click()
        await expect(bar).not_to_contain_text("Temporary")
        await expect(page.locator("#conversation").get_by_text("Done.")).to_have_count(0)
    assert not list((tmp_path / "work" / "conversations").iterdir())
