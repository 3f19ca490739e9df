"""The page for a reader of German: every part that a first conversation shows speaks it, at every width."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.page.browser import browsing, expect, home, shot
from tests.support.page.stories import shell, too_wide
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")


async def test_a_browser_of_german_gets_the_page_in_german(tmp_path: Path) -> None:
    replies = [shell("touch eins"), "Fertig."]
    async with (
        serving(tmp_path, Scripted(replies), approval_admin="ask", approval_time_limit_s="300") as served,
        browsing() as browser,
    ):
        page = await browser.page(locale="de-DE")
        await page.goto(home(served))
        await expect(page.locator("html")).to_have_attribute("lang", "de")
        await expect(page.get_by_role("heading", name="Was möchtest du tun?")).to_be_visible()
        message = page.get_by_role("textbox", name="Nachricht")
        await expect(message).to_have_attribute("placeholder", "Nachricht an dragoman")
        await shot(page, "german-welcome")
        await message.fill("Lege eine Datei an.")
        await page.get_by_role("button", name="Senden").click()
        question = page.get_by_role("group", name="Diesen Befehl ausführen?")
        await expect(question.get_by_text("Läuft in 5 Min. ab")).to_be_visible()
        await expect(page.locator("#conversation").get_by_text("wartet auf dich")).to_be_visible()
        await shot(page, "german-approval")
        await question.get_by_role("button", name="Einmal freigeben").click()
        await expect(page.get_by_text("Fertig.", exact=True)).to_be_visible()
        await expect(page.locator("#conversation").get_by_text("fertig", exact=True)).to_be_visible()
        bar = page.get_by_role("group", name="Status")
        await expect(bar.get_by_text("Verbunden")).to_be_visible()
        await expect(bar.get_by_role("button", name="Kontext:")).to_contain_text("32.768 Token")
        await page.get_by_role("button", name="Einstellungen").click()
        panel = page.get_by_role("complementary", name="Einstellungen")
        await panel.get_by_text("Verbrauch in diesem Monat").click()
        await expect(panel.get_by_text("Gelesen").first).to_be_visible()
        await panel.get_by_text("Tastenkürzel").click()
        await expect(panel.get_by_text("Umschalt + Enter")).to_be_visible()
        await shot(page, "german-settings")
        assert await too_wide(page) == []
        await page.set_viewport_size({"width": 390, "height": 844})
        assert await too_wide(page) == []
        await shot(page, "german-phone")
        await panel.get_by_label("Sprache").select_option("en")
        await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
