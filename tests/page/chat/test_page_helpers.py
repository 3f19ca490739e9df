"""Helpers on the page: the card of their call opens their run, and their approvals stand in the conversation's tray."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models.replies import tool_call
from tests.support.page.browser import browsing, expect, home, say
from tests.support.server.delegating import delegates, helpers_in

pytestmark = pytest.mark.usefixtures("chromium")


async def test_the_card_opens_the_helper_and_the_tray_answers_for_it(tmp_path: Path) -> None:
    write = tool_call("write_file", path="a.txt", content="x")
    replies = {"Ask": [delegates("Help"), "All is done."], "Help": [write, "Written by the helper."]}
    async with (
        helpers_in(tmp_path, replies, approval_admin="ask") as served,
        browsing() as with_,
    ):
        page = await with_.page()
        await page.goto(home(served))
        await say(page, "Ask")
        card = page.locator(".card", has_text="delegate").first
        await expect(card.get_by_text("waiting for your approval")).to_be_visible()
        await page.get_by_role("button", name="Open helper").click()
        await expect(page.locator(".helper-run .card", has_text="write_file")).to_be_visible()
        await page.get_by_role("button", name="Approve", exact=False).first.click()
        await expect(page.get_by_text("All is done.")).to_be_visible()
        await expect(page.locator(".helper-run").get_by_text("Written by the helper.")).to_be_visible()
        await expect(page.get_by_text("answered, steps: 2")).to_be_visible()
        await expect(page.locator(".helper-run .working")).to_be_hidden()
        await expect(page.locator(".helper-run time")).not_to_contain_text("1970")
    assert (tmp_path / "work" / "a.txt").read_text() == "x"
