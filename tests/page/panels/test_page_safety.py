"""Guards of runs on the page: an admin sees and switches them, and new runs have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.access.guards import audited
from tests.support.page.browser import browsing, expect, home
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")


async def test_a_guard_is_switched_for_new_runs(tmp_path: Path) -> None:
    provider = Scripted(["One.", "Two."])
    async with serving(tmp_path, provider) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await served.chat("Before.")
        await page.get_by_role("button", name="Settings").click()
        await page.locator("#panel").get_by_text("Guards of runs", exact=True).click()
        switches = page.locator("#panel").get_by_role("switch", name="It costs one more request")
        await expect(switches).to_have_count(2)
        canary = page.locator("#panel").get_by_role("switch", name="Canary")
        await expect(canary).not_to_be_checked()
        async with page.expect_response("**/settings"):
            await canary.check()
        await served.chat("After.")
        assert await audited(served, "local") == [("setting canary", "changed")]
        await page.reload()
        await page.get_by_role("button", name="Settings").click()
        await page.locator("#panel").get_by_text("Guards of runs", exact=True).click()
        await expect(canary).to_be_checked()
    before, after = (request.opening()[0].text for request in provider.requests)
    assert "Never repeat this code" in after and "Never repeat this code" not in before
