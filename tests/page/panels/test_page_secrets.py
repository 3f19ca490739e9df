"""Secrets on the page: an admin adds one and removes it; its value is nowhere to be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.page.browser import browsing, expect, home
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")
VALUE = "ghp_Value-of-tests/0123456789"


async def test_a_secret_is_added_replaced_and_removed(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        browser.expected.append("409")
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("button", name="Settings").click()
        panel = page.locator("#panel")
        await panel.get_by_text("Secrets", exact=True).click()
        await expect(panel.get_by_text("No secrets.")).to_be_visible()

        async def add() -> None:
            await panel.get_by_label("Name", exact=True).fill("github")
            await panel.get_by_label("Value", exact=True).fill(VALUE)
            await panel.get_by_label("Environment variable").fill("GITHUB_TOKEN")
            await panel.get_by_label("Hosts").fill("api.github.com, github.com")
            await panel.get_by_label("Only these paths").fill("/repos/**, GET /user")
            await panel.get_by_role("button", name="Add secret").click()

        await add()
        row = panel.get_by_role("listitem").filter(has_text="github")
        await expect(row).to_contain_text(
            "GITHUB_TOKEN: api.github.com, github.com (bash, python); /repos/**, GET /user; from admin; never used"
        )
        await expect(panel.get_by_label("Value", exact=True)).to_have_value("")
        await add()
        await expect(panel.get_by_text("There is a secret github already")).to_be_visible()
        assert VALUE not in await page.content()
        await panel.get_by_label("Replace the one of this name").check()
        await panel.get_by_role("button", name="Add secret").click()
        await expect(panel.get_by_label("Value", exact=True)).to_have_value("")
        await row.get_by_role("button", name="Remove").click()
        await row.get_by_role("button", name="Remove secret").click()
        await expect(panel.get_by_text("No secrets.")).to_be_visible()
