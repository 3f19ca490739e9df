"""A reminder on the page: approved with its times in words, shown in its conversation, and answered there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.page.axe import violations
from tests.support.page.browser import STORY_S, browsing, expect, home, shot
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")
DAILY = {"action": "add", "name": "bins", "message": "Say that the bin goes out.", "cron": "0 17 * * *"}
CALL = f"<tool_call>{json.dumps({'name': 'manage_schedules', 'arguments': DAILY})}</tool_call>"


@pytest.mark.parametrize("locale", ["en-GB", "de-DE"])
async def test_a_reminder_is_approved_shown_and_answered_in_its_conversation(tmp_path: Path, locale: str) -> None:
    german = locale == "de-DE"
    provider = Scripted([CALL, "It is set.", "The bin goes out."])
    async with asyncio.timeout(STORY_S), serving(tmp_path, provider) as served, browsing() as browser:
        page = await browser.page(locale=locale, timezone_id="Asia/Tokyo")
        await page.goto(home(served))
        await page.locator("#composer-text").fill("Remind me of the bins at five.")
        await page.keyboard.press("Enter")
        box = page.locator(".approval")
        await expect(box).to_contain_text("At 17:00 every day (Asia/Tokyo), next on ")
        await expect(box).to_contain_text("A run begins by itself and answers in this conversation.")
        heading = "Deine Erinnerungen und Zeitpläne ändern?" if german else "Change your reminders and schedules?"
        await expect(box.locator("h3")).to_have_text(heading)
        await shot(page, f"reminder-approval-{locale}")
        await box.locator('[data-action="approve"]').click()
        await expect(page.get_by_text("It is set.")).to_be_visible()
        line = page.locator(".reminders li")
        words = "Erinnerung: bins, täglich um 17:00" if german else "Reminder: bins, every day at 17:00"
        await expect(line).to_have_text(words)
        assert not await violations(page, "a conversation with a reminder")
        await shot(page, f"reminder-line-{locale}")

        scheduler = served.services.automation.scheduler
        [row] = scheduler.of("local")
        await scheduler.run_now(row.id, "local")
        note = page.get_by_role("group", name="Von einer Erinnerung" if german else "From a reminder")
        await expect(note).to_contain_text('The reminder "bins" is due: it is ')
        await expect(page.get_by_text("The bin goes out.", exact=True)).to_be_visible()
        if german:
            return
        await page.goto(home(served))
        await expect(page.locator(".reminders")).to_have_count(1)
        await expect(line).to_have_count(0)
        await page.get_by_role("button", name="Settings").click()
        panel = page.get_by_role("complementary", name="Settings")
        await panel.get_by_text("Schedules and triggers").click()
        await panel.get_by_role("button", name="Open its conversation").click()
        await expect(line).to_have_text(words)
        await expect(page.get_by_text("It is set.")).to_be_visible()
        await panel.get_by_role("button", name="Turn off").click()
        await expect(line).to_have_count(0)
