"""The list of conversations by keyboard, and where Back leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.page.browser import browsing, expect, home, say
from tests.support.page.stories import begun
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")


async def test_the_list_is_one_tab_stop_and_arrow_keys_move_in_it(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Yes."], repeat=True)) as served, browsing() as browser:
        for _ in range(3):
            session = await begun(served, 1)
        folder = await served.client.post("/folders", json={"name": "Trips"})
        await served.client.patch(f"/sessions/{session}", json={"folder": folder.json()["id"]})
        page = await browser.page()
        await page.goto(home(served))
        links, stops = page.locator(".session-link:visible"), page.locator(".session-list [tabindex='0']")
        await expect(links).to_have_count(2)
        await expect(stops).to_have_count(1)
        await page.get_by_role("searchbox").focus()
        await page.keyboard.press("Tab")
        toggle = page.get_by_role("button", name="Trips", exact=False).first
        await expect(toggle).to_be_focused()
        await page.keyboard.press("ArrowDown")
        await expect(links.nth(0)).to_be_focused()
        await page.keyboard.press("End")
        await expect(links.nth(1)).to_be_focused()
        await page.keyboard.press("ArrowDown")  # there is none
        await expect(links.nth(1)).to_be_focused()
        await page.keyboard.press("ArrowRight")
        await expect(page.locator(".session-more:visible").last).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("menuitem").first).to_be_focused()
        await page.keyboard.press("ArrowDown")  # in the menu
        await expect(page.get_by_role("menuitem").nth(1)).to_be_focused()
        await page.keyboard.press("Escape")
        await page.keyboard.press("ArrowLeft")
        await expect(links.nth(1)).to_be_focused()
        await expect(stops).to_have_count(1)
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("button", name="New folder")).to_be_focused()
        await page.keyboard.press("Shift+Tab")
        await expect(links.nth(1)).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("article", name="Run")).to_have_count(1)
        await expect(links.nth(1)).to_have_attribute("aria-current", "page")


async def test_back_leads_from_a_new_conversation_to_the_one_before(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Yes."], repeat=True)) as served, browsing() as browser:
        session = await begun(served, 2)
        page = await browser.page()
        await page.goto(f"{home(served)}/#{session}")
        turns = page.get_by_role("article", name="Run")
        await expect(turns).to_have_count(2)
        await page.keyboard.press("Control+Shift+O")
        await expect(turns).to_have_count(0)
        await say(page, "Another one.")
        await expect(page.locator(".turn-foot")).to_have_count(1)
        await page.go_back()
        await expect(turns).to_have_count(2)
        assert page.url.endswith(session)
        await page.go_forward()
        await expect(turns).to_have_count(1)
        await page.keyboard.press("Control+Shift+O")
        await expect(turns).to_have_count(0)
        await page.go_back()
        await expect(page.locator(".user-text")).to_have_text("Another one.")
