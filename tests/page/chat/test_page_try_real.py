"""Trying again from inside a run with the server that does it: other arguments, approved, taken over and undone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.models.replies import native_bash
from tests.support.page.browser import STORY_S, Locator, Page, browsing, expect, home, shot
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

SCRIPT = [("I write.\n\n", native_bash("echo one > notes.txt")), "It is one.", "It is two."]


async def take_over(page: Page, menu: str = "More about this branch") -> Locator:
    """The dialog, once all of a branch was to be taken over."""
    await page.get_by_role("button", name=menu).click()
    await page.get_by_role("menuitem", name="Copy the files to the workspace").click()
    dialog = page.get_by_role("dialog", name="Copy the files of this branch to the workspace")
    await expect(dialog.locator(".diff")).to_contain_text("two")
    await dialog.get_by_role("button", name="Copy to the workspace", exact=True).click()
    await dialog.get_by_role("button", name="Copy all").click()
    await expect(dialog.locator(".outcome")).not_to_be_empty()
    return dialog


async def no_way_to_the_workspace(page: Page) -> None:
    """The files of a branch with its own folder are shown, and not the workspace's files of their names."""
    await page.get_by_title("Show notes.txt").click()
    shown = page.get_by_role("dialog", name="notes.txt")
    await expect(shown.get_by_text("two")).to_be_visible()
    await expect(shown.get_by_role("button", name="Open in the workspace")).to_have_count(0)
    await shown.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="Changes", exact=False).click()
    changes = page.get_by_role("dialog", name="Changes")
    await expect(changes.get_by_text("notes.txt").first).to_be_visible()
    await expect(changes.get_by_role("button", name="Open in the workspace")).to_have_count(0)
    await changes.get_by_role("button", name="Close").click()


async def test_a_try_is_approved_compared_taken_over_and_undone(tmp_path: Path) -> None:
    notes = tmp_path / "work" / "notes.txt"
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(SCRIPT)) as served, browsing() as browser:
        events = await served.chat("Write it.", approval="auto")
        session = events[0]["session"]
        browser.expected.append("409")  # while the file of the original stands against it
        page = await browser.page()
        await page.goto(f"{home(served)}/#{session}")
        card = page.locator(".card")
        await card.locator(".card-fold").click()
        await card.get_by_role("button", name="Try from here").click()
        dialog = page.get_by_role("dialog", name="Try from here")
        await dialog.get_by_label("command").fill("echo two > notes.txt")
        await dialog.get_by_role("button", name="Try", exact=True).click()
        await expect(dialog).to_have_count(0)
        await expect(page).not_to_have_url(f"{home(served)}/#{session}")
        await page.locator("#approvals").get_by_role("button", name="Approve once").click()
        await expect(page.get_by_text("It is two.")).to_be_visible()
        await expect(page.locator(".branch-count")).to_have_text("2 / 2")
        await no_way_to_the_workspace(page)
        assert notes.read_text() == "one\n"
        await shot(page, "try-real")
        more = page.get_by_role("button", name="More about this branch")
        await more.click()
        await page.get_by_role("menuitem", name="Compare with the original").click()
        compared = page.get_by_role("dialog", name="Compare with the original")
        await expect(compared.locator(".parted-column").first).to_contain_text("It is one.")
        await expect(compared.locator(".parted-column").last).to_contain_text("It is two.")
        await shot(page, "parted-real")
        await compared.get_by_role("button", name="Close").click()
        files = await take_over(page)
        await shot(page, "take-real")
        await expect(files.locator("ul.problem")).to_have_text("notes.txt: it has changed since")
        await files.get_by_role("button", name="Copy all").click()  # in vain
        await expect(files.locator(".outcome")).not_to_be_empty()
        await expect(files.locator("ul.problem")).to_have_count(1)
        await files.get_by_role("button", name="Close").click()
        await page.get_by_role("button", name="Previous branch").click()
        await page.get_by_role("button", name="Changes", exact=False).click()
        changes = page.get_by_role("dialog", name="Changes")
        await expect(changes.get_by_role("button", name="Open in the workspace")).to_be_visible()
        await changes.get_by_role("button", name="Undo", exact=True).click()
        await changes.get_by_role("button", name="Undo all").click()
        await expect(changes.locator(".outcome")).to_have_text("")
        await changes.get_by_role("button", name="Close").click()
        assert not notes.exists()
        await served.client.delete(f"/sessions/{session}")  # the branch remains, and has its files
        await page.go_back()
        await expect(page.locator(".branch-count")).to_have_count(0)
        files = await take_over(page, "Answer again")
        await expect(files.locator(".outcome")).to_contain_text("The files are in the workspace now")
        assert notes.read_text() == "two\n"
        await shot(page, "taken-real")
        await files.get_by_role("button", name="Undo").click()
        await expect(files.locator(".outcome")).to_have_text("Undone.")
        assert not notes.exists()
