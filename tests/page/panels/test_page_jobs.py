"""Background jobs in the panel: live while they run, stopped by a button, told how they ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.page.browser import STORY_S, Locator, browsing, choose, expect, home, say, shot
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

WAIT = "until [ -e {} ]; do read -t 0.05 <> <(:); done"


def in_background(*lines: str) -> str:
    return "\n".join(["```bash", "#!bg", *lines, "```"])


SCRIPT = (
    in_background(WAIT.format("first"), "seq 1 40", WAIT.format("second"), "echo '<b>last</b>'", "exit 3"),
    "The first one runs.",
    in_background("echo forever", WAIT.format("never")),
    "The second one runs.",
)


async def test_jobs_are_watched_stopped_and_looked_at_again(tmp_path: Path) -> None:
    provider = Scripted(SCRIPT)
    async with (
        asyncio.timeout(STORY_S),
        serving(tmp_path, provider, job_follow_up="false") as served,
        browsing() as browser,
    ):
        page = await browser.page()
        await page.goto(home(served))
        button = page.locator(".jobs-button")
        await expect(button).to_have_text("Background jobs")
        await choose(page, "Background jobs")
        panel = page.get_by_role("complementary", name="Background jobs")
        await expect(panel.get_by_text("A background job is a command that goes on")).to_be_visible()

        await say(page, "Do the first in the background.")
        running = panel.get_by_role("list", name="Running").get_by_role("listitem")
        await expect(running).to_have_count(1)
        await expect(running).to_contain_text("running")
        await expect(button).to_have_text("1 background job is running")
        await running.get_by_role("button", name="2 more lines").click()
        await expect(running.locator(".job-command")).to_contain_text("exit 3")
        (tmp_path / "work/first").touch()
        tail = running.get_by_role("group", name="Last lines of the background job")
        await expect(tail).to_contain_text("40")
        await expect(tail).not_to_contain_text("1\n2\n3\n")
        card = page.locator(".card-job").first
        await expect(card.locator(".tail")).to_contain_text("29\n30\n")  # the card of the call shows the same
        await expect(card).to_contain_text("Background job: running")
        await running.get_by_role("button", name="Show all").click()
        await expect(tail).to_contain_text("1\n2\n3\n")
        await say(page, "And the second.")
        await expect(running).to_have_count(2)
        await shot(page, "jobs")

        forever = running.filter(has_text="echo forever")
        await forever.get_by_role("button", name="Stop background job").click()
        await expect(forever.get_by_role("button", name="Keep running")).to_be_focused()
        await forever.get_by_role("button", name="Stop it").click()
        ended = panel.get_by_role("list", name="Ended").get_by_role("listitem")
        await expect(ended).to_have_count(1)
        await expect(ended).to_contain_text("stopped")

        (tmp_path / "work/second").touch()
        await expect(ended).to_have_count(2)
        await expect(ended.first).to_contain_text("ended, exit code 3")
        await expect(button).to_have_text("Background jobs")
        await _has_ended(card)
        await ended.first.locator("summary").click()
        tail = ended.first.get_by_role("group", name="Last lines of the background job")
        await expect(tail).to_contain_text("<b>last</b>")
        await shot(page, "jobs-ended")
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Menu")).to_be_focused()


async def _has_ended(card: Locator) -> None:
    """On the card of the call that has started the job."""
    await expect(card).to_contain_text("Background job: ended, exit code 3")
    await expect(card.locator(".tail")).to_contain_text("<b>last</b>")
    await expect(card.get_by_role("button", name="Stop background job")).to_be_hidden()
