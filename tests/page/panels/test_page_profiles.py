"""Profiles on the page: added in the settings, chosen for a conversation, shown with the layers of its options."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.page.browser import browsing, expect, home, say
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")


async def test_a_profile_is_added_and_chosen(tmp_path: Path) -> None:
    model = Scripted(["Done."], repeat=True)
    hook = 'name = "ledger"\non = "after_answer"\nkind = "observer"\ncommand = ["/bin/false"]\n'
    (tmp_path / "dragoman.toml").write_text(f"[[hooks]]\n{hook}")
    async with serving(tmp_path, model) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("button", name="Settings").click()
        panel = page.locator("#panel")
        await panel.get_by_text("Profiles", exact=True).click()
        await panel.get_by_label("Name").fill("careful")
        await panel.get_by_label("Instructions").fill("Quote the lines.")
        await panel.get_by_label("Only these tools").fill("read_* nope")
        await panel.get_by_label("Approvals").select_option("ask")
        await panel.get_by_role("button", name="Save profile").click()
        await expect(panel.get_by_text("Profile saved.")).to_be_visible()
        await expect(panel.get_by_role("listitem").filter(has_text="careful")).to_contain_text("Quote the lines.")
        await page.keyboard.press("Escape")
        await say(page, "Look around")
        await expect(page.locator("#conversation").get_by_text("Done.")).to_be_visible()
        await page.get_by_role("button", name="More for Look around").click()
        await page.get_by_role("menuitem", name="Options").click()
        await panel.get_by_text("Options in use").click()
        values = panel.get_by_role("region", name="Options in use")
        await expect(values.get_by_role("row", name="Most steps 20 server")).to_be_visible()
        await panel.get_by_label("Profile").select_option("careful")
        await panel.get_by_role("button", name="Save", exact=True).click()
        await expect(values.get_by_role("row", name="Approvals Ask before changes profile careful")).to_be_visible()
        await expect(values.get_by_role("row", name="Only these tools read_*, nope profile careful")).to_be_visible()
        await page.keyboard.press("Escape")
        await say(page, "And now?")
        await expect(page.locator("#conversation").get_by_text("Done.")).to_have_count(2)
        assert served.services.factory.hooks
        await served.services.factory.hooks.informed()
        await page.get_by_role("button", name="Settings").click()
        await panel.get_by_text("Hooks", exact=True).click()
        row = panel.get_by_role("list", name="Hooks").get_by_role("listitem")
        await expect(row).to_have_text("ledgerobserver, after_answer: /bin/false")
        await expect(panel.locator(".pairs", has_text="Failed calls")).to_have_text("Hooks1Failed calls2Skipped0")
    assert "Quote the lines." in model.requests[-1].opening()[0].text
    assert "Quote the lines." not in model.requests[0].opening()[0].text


async def test_a_conversation_begins_with_a_profile_and_keeps_it(tmp_path: Path) -> None:
    model = Scripted(["Done."], repeat=True)
    async with serving(tmp_path, model) as served, browsing() as browser:
        put = await served.client.put("/profiles/careful", json={"prompt": "Quote the lines.", "max_rounds": 3})
        assert put.status_code == 201
        page = await browser.page()
        await page.goto(home(served))
        for words, seen in (("Look around", 1), ("And now?", 2)):
            if seen == 1:
                await page.get_by_role("button", name="Conversation options").click()
                await page.locator("#panel").get_by_label("Profile").select_option("careful")
                await page.locator("#panel").get_by_role("button", name="Save", exact=True).click()
                await expect(page.get_by_role("button", name="Conversation options: 1 value set")).to_be_visible()
                await page.keyboard.press("Escape")
            await say(page, words)
            await expect(page.locator("#conversation").get_by_text("Done.")).to_have_count(seen)
        await page.get_by_role("button", name="New conversation").first.click()
        await say(page, "Another one")
        await expect(page.locator("#conversation").get_by_text("Done.")).to_have_count(1)
    quoted = ["Quote the lines." in one.opening()[0].text for one in model.requests]
    assert quoted == [True, True, False]
