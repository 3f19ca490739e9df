"""The operator's rules on the page: admins see them in the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.access.operator_rules import RULES_FILE
from tests.support.page.browser import Locator, Page, browsing, expect, home
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.usefixtures("chromium")


async def opened_rules(page: Page, served: Served) -> Locator:
    await page.goto(home(served))
    await page.get_by_role("button", name="Settings").click()
    panel = page.locator("#panel")
    await panel.get_by_text("Rules on calls", exact=True).click()
    return panel


async def test_the_rules_are_listed(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(RULES_FILE)
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        panel = await opened_rules(await browser.page(), served)
        await expect(panel.get_by_text("Keys are not for agents.")).to_be_visible()
        await expect(panel.get_by_text("secrets/**")).to_be_visible()


async def test_rules_are_tried_on_the_past(tmp_path: Path) -> None:
    """A call that ran before the rule was there would be refused now."""
    async with serving(tmp_path, Scripted(["```bash\ncat secrets/key\n```", "Done."])) as served:
        await served.chat("Go.")
    (tmp_path / "dragoman.toml").write_text(RULES_FILE)
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        panel = await opened_rules(await browser.page(), served)
        await panel.get_by_role("button", name="Try it on past calls").first.click()
        await expect(panel.get_by_text("This rule decides 1 of 1 calls")).to_be_visible()
        await expect(panel.get_by_role("cell", name="Refused")).to_be_visible()
        await panel.get_by_role("button", name="Try all rules on past calls").click()
        await expect(panel.get_by_text("One call of the last 90 days")).to_be_visible()
        await expect(panel.get_by_role("row", name="bash")).to_have_count(2)
