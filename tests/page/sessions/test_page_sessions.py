"""The conversations at the side of the page: found, renamed, deleted, saved as files; on a phone a drawer."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from anyio import Path as AsyncPath
from playwright.async_api import Route

from app.models.scripted import Pause, Scripted
from tests.support.page.browser import PHONE, browsing, expect, home, say, shot
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")


async def test_conversations_are_listed_marked_and_found(tmp_path: Path) -> None:
    held = asyncio.Event()
    script = ["A rose is red.", "Moss is green.", ("Slowly", Pause(held), " done.")]
    async with serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        await served.chat("Tell me of roses.")
        await served.chat("Tell me of <b>moss</b>.")
        page = await browser.page()
        await page.goto(home(served))
        links = page.locator(".session-link")
        await expect(page.get_by_role("heading", name="Today")).to_be_visible()
        await expect(links).to_have_text(["Tell me of <b>moss</b>.", "Tell me of roses."])
        await say(page, "Be slow.")
        first = page.get_by_role("link", name="Be slow.")
        await expect(first).to_have_attribute("aria-current", "page")
        await expect(first).to_contain_text("working")
        held.set()
        await expect(first).not_to_contain_text("working")

        await page.get_by_role("link", name="Tell me of roses.").click()
        await expect(page.locator("#conversation").get_by_text("A rose is red.")).to_be_visible()
        await expect(page.locator("[aria-current=page]")).to_have_count(1)
        await expect(first).not_to_have_attribute("aria-current", "page")
        await page.locator("#conversation").focus()
        await page.keyboard.press("/")
        search = page.get_by_role("searchbox", name="Search conversations")
        await expect(search).to_be_focused()
        await search.fill("moss")
        await expect(links).to_have_count(1)
        await expect(page.locator(".session-snippet")).to_be_visible()
        await shot(page, "sessions-found")
        await search.fill("nothing of this kind")
        await expect(page.get_by_text("No results.")).to_be_visible()
        await search.press("Escape")
        await expect(links).to_have_count(3)

        await page.keyboard.press("Control+Shift+O")
        await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
        await expect(page.get_by_role("heading", name="What would you like to do?")).to_be_visible()
        await page.keyboard.press("Control+k")
        await expect(search).to_be_focused()


async def test_a_conversation_is_renamed_and_saved_as_a_file(tmp_path: Path) -> None:
    block = "```bash\necho one two\n```\n"
    tagged = '<tool_call>{"name": "bash", "arguments": {"command": "echo three"}}</tool_call>'
    script = [block, f"I could write:\n\n````\n{block}````\n\n{tagged}", "It said `one two`."]
    async with serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        await served.chat("Say something.")
        page = await browser.page()
        await page.goto(home(served))
        link = page.get_by_role("link", name="Say something.")
        await link.click()
        await expect(page.get_by_role("heading", name="Say something.")).to_be_visible()
        more = page.locator(".session-more")
        await more.focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
        await shot(page, "sessions-menu")
        await page.keyboard.press("Enter")
        field = page.get_by_role("textbox", name="Title")
        await expect(field).to_be_focused()
        await field.fill("Words of one kind")
        await field.press("Enter")
        await expect(page.get_by_role("link", name="Words of one kind")).to_be_visible()
        await expect(page.get_by_role("heading", name="Words of one kind")).to_be_visible()

        await page.get_by_role("button", name="Rename").click()
        await field.fill("x")
        await field.press("Escape")
        await expect(page.get_by_role("heading", name="Words of one kind")).to_be_visible()

        await more.click()
        async with page.expect_download() as saved:
            await page.get_by_role("menuitem", name="Export as Markdown").click()
        download = await saved.value
        assert download.suggested_filename == "Words-of-one-kind.md"
        text = await AsyncPath(await download.path()).read_text()
        assert text.startswith("# Words of one kind\n\n## You\n\nSay something.\n")
        assert "It said `one two`." in text
        calls = "```bash\necho one two\n```\n", '"command": "echo one two"', '"command": "echo three"'
        assert [text.count(call) for call in calls] == [2, 0, 1]  # the block of code is not written again
        await more.click()
        async with page.expect_download() as saved:
            await page.get_by_role("menuitem", name="Export as JSON").click()
        session = json.loads(await AsyncPath(await (await saved.value).path()).read_text())
        assert [message["role"] for message in session["messages"]] == ["user", *2 * ["assistant", "tool"], "assistant"]


async def test_a_conversation_is_deleted_by_who_means_it(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Words."])) as served, browsing() as browser:
        await served.chat("Say something.")
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("link", name="Say something.").click()
        more = page.locator(".session-more")
        await more.click()
        await page.get_by_role("menuitem", name="Delete").click()
        box = page.get_by_role("dialog", name="Delete this conversation?")
        await expect(box.get_by_role("button", name="Cancel")).to_be_focused()
        await shot(page, "sessions-delete")
        await page.keyboard.press("Escape")
        await expect(box).to_be_hidden()
        await more.click()
        await page.get_by_role("menuitem", name="Delete").click()
        await box.get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("Your conversations will appear here.")).to_be_visible()
        await expect(page).to_have_url(f"{home(served)}/")
        assert (await served.client.get("/sessions")).json()["sessions"] == []


async def test_on_a_phone_the_conversations_are_a_drawer(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["A rose is red."])) as served, browsing() as browser:
        await served.chat("Tell me of roses.")
        page = await browser.page(viewport=PHONE, color_scheme="dark")
        await page.goto(home(served))
        menu = page.get_by_role("button", name="Conversations")
        link = page.get_by_role("link", name="Tell me of roses.")
        await expect(link).to_be_hidden()
        await menu.click()
        await expect(link).to_be_visible()
        await expect(menu).to_have_attribute("aria-expanded", "true")
        inside = page.locator("#sidebar")
        await expect(inside.locator(":focus")).to_have_count(1)
        for _ in range(8):  # around once: what lies below cannot be reached
            await page.keyboard.press("Tab")
            await expect(page.locator(".stage :focus")).to_have_count(0)
        await shot(page, "sessions-drawer")
        await inside.get_by_role("button", name="New conversation").focus()
        await page.keyboard.press("Escape")
        await expect(link).to_be_hidden()
        await expect(menu).to_be_focused()
        await menu.click()
        await page.mouse.click(PHONE["width"] - 10, 400)
        await expect(link).to_be_hidden()
        await menu.click()
        await link.click()
        await expect(link).to_be_hidden()
        await expect(page.locator("#conversation").get_by_text("A rose is red.")).to_be_visible()
        await shot(page, "sessions-phone")


async def test_words_that_were_typed_before_the_list_came_are_searched_for(tmp_path: Path) -> None:
    typed = asyncio.Event()

    async def later(route: Route) -> None:
        await typed.wait()
        await route.continue_()

    async with serving(tmp_path, Scripted(["A rose is red.", "Moss is green."])) as served, browsing() as browser:
        await served.chat("Tell me of roses.")
        await served.chat("Tell me of moss.")
        page = await browser.page()
        await page.route(re.compile(r"/sessions$"), later)
        await page.goto(home(served))
        await page.get_by_role("searchbox", name="Search conversations").fill("moss")
        typed.set()
        await expect(page.locator(".session-link")).to_have_count(1)
        await expect(page.locator(".session-link")).to_contain_text("Tell me of moss.")
