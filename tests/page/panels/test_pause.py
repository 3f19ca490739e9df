"""The kill switch on the page: an admin turns it, everybody sees it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from app.models.scripted import Pause, Scripted
from tests.support.access.people import bearer
from tests.support.page.browser import browsing, choose, expect, say, shot, signed_in
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")


async def test_an_admin_pauses_stops_what_runs_and_goes_on_and_a_user_only_sees_it(tmp_path: Path) -> None:
    replies = [("One moment", Pause(asyncio.Event())), "Back again."]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        browser.expected.append("401|503")
        tokens = {name: (await bearer(served, name, role))["authorization"].split()[1] for name, role in PEOPLE}
        pages = {name: await browser.page() for name in tokens}
        for name, page in pages.items():
            await signed_in(page, served, tokens[name])
        admin, user = pages["root"], pages["ann"]
        await expect(admin.get_by_role("button", name="Settings")).to_be_visible()
        await expect(user.get_by_role("button", name="Settings")).to_be_visible()
        await user.get_by_role("button", name="Menu").click()
        await expect(user.get_by_role("menuitem", name=re.compile("Pause|MCP"))).to_have_count(0)
        await user.keyboard.press("Escape")
        await say(admin, "Hello")
        await expect(admin.get_by_text("One moment")).to_be_visible()
        await choose(admin, "Pause")
        asked = admin.get_by_role("dialog", name="Pause the server?")
        await shot(admin, "pause")
        await asked.get_by_role("button", name="Pause and stop everything").click()
        await expect(admin.get_by_text("Stopped: an admin has paused the server.")).to_be_visible()
        for page in (admin, user):
            await expect(page.get_by_role("region", name="The server is paused")).to_be_visible()
        await expect(user.get_by_role("button", name="Resume")).to_have_count(0)
        await shot(admin, "paused")
        assert served.services.switch.paused
        banner = admin.get_by_role("region", name="The server is paused")
        await banner.get_by_role("button", name="Resume").click()
        for page in (admin, user):
            await expect(page.get_by_role("region", name="The server is paused")).to_be_hidden()
        await say(admin, "And now?")
        await expect(admin.get_by_text("Back again.")).to_be_visible()


PEOPLE = (("root", "admin"), ("ann", "user"))
