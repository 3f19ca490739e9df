"""The operator's rules on the page: admins see them in the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.access.operator_rules import RULES_FILE
from tests.support.page.browser import browsing, expect, home
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")


async def test_the_rules_are_listed(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(RULES_FILE)
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("button", name="Settings").click()
        panel = page.locator("#panel")
        await panel.get_by_text("Rules on calls", exact=True).click()
        await expect(panel.get_by_text("Keys are not for agents.")).to_be_visible()
        await expect(panel.get_by_text("secrets/**")).to_be_visible()
