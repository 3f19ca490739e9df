"""The labels of conversations on the page: reported in the turn, shown in the list, added from the menu."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.access.labelled import READ, labelled
from tests.support.page.browser import browsing, expect, home, say

pytestmark = pytest.mark.usefixtures("chromium")


async def test_labels_are_shown_and_added(tmp_path: Path) -> None:
    async with labelled(tmp_path, [READ], ["ACME is fine.", "Noted."]) as one, browsing() as browser:
        page = await browser.page()
        await page.goto(home(one.served))
        await say(page, "What of ACME?")
        await expect(page.get_by_text("This conversation now has the labels: customer.")).to_be_visible()
        await expect(page.locator("#conversation").get_by_text("ACME is fine.")).to_be_visible()
        badges = page.locator(".session-labels .badge")
        await expect(badges).to_have_text(["customer"])
        await page.get_by_role("button", name="More for What of ACME?").click()
        await page.get_by_role("menuitem", name="Labels").click()
        dialog = page.get_by_role("dialog", name="Labels of this conversation")
        await expect(dialog.get_by_role("checkbox", name="customer")).to_be_disabled()
        box, word = dialog.get_by_role("checkbox", name="secret"), dialog.get_by_text("secret")
        at, beside = await box.bounding_box(), await word.bounding_box()
        assert at and beside and at["width"] < 30 and beside["y"] <= at["y"] < beside["y"] + beside["height"]
        await box.check()
        await dialog.get_by_role("button", name="Add labels").click()
        await expect(badges).to_have_text(["customer", "secret"])
        await page.reload()
        await expect(page.locator(".session-labels .badge")).to_have_text(["customer", "secret"])
        await expect(page.get_by_text("This conversation now has the labels: customer.")).to_be_visible()
        assert one.holds() == ["local"]
