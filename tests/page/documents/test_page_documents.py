"""Documents beside the chat in a real browser: they grow as they are written, are edited, and move on in other tabs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from anyio import Path as AsyncPath

from app.models.scripted import Pause, Reply, Scripted
from tests.support.models.replies import tool_call
from tests.support.page.axe import page_for_axe, violations
from tests.support.page.browser import PHONE, WIDE, Page, browsing, expect, home, say, shot
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")
TOUCHED: dict[str, Any] = {"viewport": PHONE, "has_touch": True, "is_mobile": True, "color_scheme": "dark"}
TEXT = "# Trip\n\nWe go by **train**.\n\n- bread\n- cheese\n\nWe sleep in a *tent*.\n"


async def test_a_long_block_of_code_opens_beside_the_chat_and_is_kept(tmp_path: Path) -> None:
    held, code = asyncio.Event(), "".join(f"print({at})\n" for at in range(40))
    reply: Reply = (f"So:\n```rust\n{code[:400]}", Pause(held), f"{code[400:]}```\nThat is it.")
    async with serving(tmp_path, Scripted([reply]), documents=True) as served, browsing() as browser:
        page = await browser.page(viewport=WIDE)
        await page.goto(home(served))
        await say(page, "Write it.")
        await expect(page.get_by_role("complementary", name="rust")).to_contain_text("print(33)")
        held.set()
        pane = page.get_by_role("complementary", name="print(0)")
        await expect(pane).to_contain_text("print(39)")
        await expect(pane.get_by_text("Version 1, by the agent")).to_be_visible()
        await expect(page.locator(".run-body")).to_contain_text("That is it.")
        await page.reload()
        await page.locator(".document-open").click()
        await expect(pane).to_contain_text("print(39)")
        await pane.get_by_role("button", name="Edit").click()


async def test_a_document_is_written_edited_and_decided_on(tmp_path: Path) -> None:
    held = asyncio.Event()
    written = tool_call("create_document", title="Trip <b>", content=TEXT)
    suggest = tool_call("suggest_edits", document="Trip <b>", old="a *tent*", new="an inn", reason="It rains.")
    replies: list[Reply] = [
        (written[:110], Pause(held), written[110:]),
        tool_call("update_document", document="Trip <b>", old="bread", new="fish"),
        suggest,
        "All is written.",
        "I have seen it.",
    ]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        browser.expected.append("409")
        page = await page_for_axe(browser, viewport=WIDE)
        await page.goto(home(served))
        await say(page, "Write of the trip.")
        pane = page.get_by_role("complementary", name="Trip <b>")
        await expect(pane.get_by_role("heading", name="Trip", exact=True)).to_be_visible()
        await expect(pane.get_by_role("status").first).to_have_text("The agent is writing …")
        await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
        held.set()
        await expect(pane.get_by_role("listitem")).to_have_text(["fish", "cheese"])
        await expect(pane.get_by_text("Version 2, by the agent")).to_be_visible()
        suggestion = pane.get_by_role("group", name="Suggestion 1", exact=True)
        await expect(suggestion).to_contain_text("It rains.")
        found = await violations(page, "suggestion")
        await shot(page, "document-wide")
        await suggestion.get_by_role("button", name="Accept").click()
        await expect(pane.get_by_text("We sleep in an inn.")).to_be_visible()
        await expect(pane.get_by_text("Version 3, by you")).to_be_visible()

        await in_two_tabs(page, await browser.page(**TOUCHED))
        await pane.get_by_text("Versions", exact=True).click()
        await pane.get_by_text("Version 6, by you,").click()
        await expect(pane.locator(".diff")).to_contain_text("Mine.")
        found += await violations(page, "versions")
        await shot(page, "document-versions")
        await say(page, "Do you see it?")
        await expect(page.get_by_text("I have seen it.", exact=True)).to_be_visible()
        await expect(page.get_by_text("The person has changed documents")).to_be_visible()
        assert not found, "\n".join(found)
        await page.get_by_role("button", name="More for").click()
        async with page.expect_download() as saving:
            await page.get_by_role("menuitem", name="Export as Markdown").click()
        exported = await AsyncPath(await (await saving.value).path()).read_text("utf-8")
        assert exported.endswith("# Document: Trip <b>\n\nMine.\n")


async def in_two_tabs(page: Page, other: Page) -> None:
    """An edit is seen in the other tab; one of a version that has moved on is not lost."""
    pane = page.get_by_role("complementary", name="Trip <b>")
    await other.goto(page.url)
    await other.get_by_role("button", name="Trip <b> version 2").click()
    far = other.get_by_role("complementary", name="Trip <b>")
    await expect(far.get_by_text("Version 3, by you")).to_be_visible()
    await edited(page, "cheese", "wine")
    await expect(pane.get_by_role("listitem")).to_have_text(["fish", "wine"])
    await expect(far.get_by_role("listitem")).to_have_text(["fish", "wine"])
    await shot(other, "document-phone")

    await far.get_by_role("button", name="Edit").click()
    await edited(page, "fish", "rice")
    area = far.get_by_role("textbox", name="Text")
    await area.fill("Mine.")
    await area.press("Control+s")
    await expect(far.get_by_text("Save again to keep your text")).to_be_visible()
    await expect(far.locator(".diff")).to_contain_text("rice")
    await far.get_by_role("button", name="Save").click()
    await expect(pane.get_by_text("Mine.")).to_be_visible()


async def edited(page: Page, old: str, new: str) -> None:
    """Edit the open document by hand, with the keyboard."""
    await page.get_by_role("button", name="Edit", exact=True).click()
    area = page.get_by_role("textbox", name="Text")
    await expect(area).to_be_focused()
    await area.fill((await area.input_value()).replace(old, new))
    await area.press("Control+s")
    await expect(page.get_by_role("button", name="Edit", exact=True)).to_be_focused()
