"""Schedules and triggers in the settings of the page: added, listed with their last runs, switched off, removed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.page.browser import STORY_S, browsing, expect, home
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")


async def test_schedules_and_triggers_are_added_run_and_switched_off(tmp_path: Path) -> None:
    provider = Scripted(["Nothing is new."])
    async with asyncio.timeout(STORY_S), serving(tmp_path, provider) as served, browsing() as browser:
        browser.expected.append("422")
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("button", name="Settings").click()
        panel = page.get_by_role("complementary", name="Settings")
        await panel.get_by_text("Schedules and triggers").click()
        await panel.get_by_text("Add a schedule").click()
        await panel.get_by_label("Name", exact=True).fill("<b>morning</b>")
        await panel.get_by_label("Message").fill("What is new?")
        await panel.get_by_label("Time", exact=True).fill("61 * * * *")
        add = panel.get_by_role("button", name="Add schedule")
        await add.click()
        await expect(panel.get_by_text("Write five fields")).to_be_visible()
        await panel.get_by_label("Time", exact=True).fill("30 7 * * *")
        await panel.get_by_label("Time zone").fill("Asia/Tokyo")
        await add.click()
        row = panel.get_by_role("list", name="Schedules", exact=True).get_by_role("listitem").first
        await expect(row).to_contain_text("<b>morning</b>")
        await expect(row).to_contain_text("30 7 * * * (Asia/Tokyo)")
        [stored] = served.services.automation.scheduler.of("local")
        assert stored.text == "What is new?" and stored.next

        await row.get_by_role("button", name="Run now").click()
        last = row.get_by_role("list", name="Last runs")
        await expect(last).to_be_visible()
        await row.get_by_role("button", name="Turn off").click()
        await expect(row).to_contain_text("turned off")
        await expect(last).to_contain_text("answered")
        await last.get_by_role("button").click()
        await expect(page.get_by_text("Nothing is new.")).to_be_visible()
        await row.get_by_role("button", name="Remove", exact=True).click()
        await row.get_by_role("button", name="Remove it").click()
        await expect(panel.get_by_text("A schedule sends a message at set times")).to_be_visible()

        await panel.get_by_text("Add a trigger").click()
        form = panel.locator("form", has=page.get_by_role("button", name="Add trigger"))
        await form.get_by_label("Name", exact=True).fill("deploys")
        await form.get_by_label("Message").fill("Sum up.")
        await form.get_by_label("Template").fill("{{ref}}")
        await form.get_by_role("button", name="Add trigger").click()
        secret = panel.get_by_label("Secret of deploys")
        assert (await secret.input_value()).startswith("dgt_")
        await panel.get_by_role("button", name="Done").click()
        await expect(secret).to_have_count(0)
        [trigger] = await served.services.store.triggers("local")
        await expect(panel.get_by_text(f"/triggers/{trigger.id}")).to_be_visible()
