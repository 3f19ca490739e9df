"""The workspace panel in a real browser: walked through with the keyboard, changed, and live while a run writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import FilePayload

from app.models.scripted import Reply, Scripted
from tests.support.page.browser import (
    PHONE,
    REFUSED_PROBE,
    STORY_S,
    Locator,
    Page,
    browsing,
    choose,
    expect,
    home,
    say,
    shot,
)
from tests.support.page.stories import shell
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

EVIL = "<svg xmlns='http://www.w3.org/2000/svg'><script>window.ran = true</script></svg>"
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["# Study"]},
        {
            "cell_type": "code",
            "source": "1 + 1",
            "outputs": [
                {"output_type": "stream", "text": ["printed\n"]},
                {"output_type": "display_data", "data": {"text/html": "<script>window.ran = true</script>"}},
            ],
        },
    ]
}


@asynccontextmanager
async def looking(folder: Path, *replies: Reply, phone: bool = False) -> AsyncGenerator[tuple[Page, Path], None]:
    """The page of a server with some files, and its open panel."""
    async with asyncio.timeout(STORY_S), serving(folder, Scripted(replies)) as served, browsing() as browser:
        work = folder / "work"
        (work / "data/deep").mkdir(parents=True)
        (work / "data/table.csv").write_text('name,note\nAnn,"one, ""two"""\nBob,"a\nb"\n')
        (work / "data/deep/book.ipynb").write_text(json.dumps(NOTEBOOK))
        (work / "notes.md").write_text("# Title\n\nSome *words*.\n")
        (work / "evil.svg").write_text(
            "<svg xmlns='http://www.w3.org/2000/svg'><script>window.ran = true</script></svg>"
        )
        (work / ".hidden").write_text("x")
        browser.expected += ["403|409", REFUSED_PROBE]  # a name that is refused, a file that is there already
        page = await browser.page(**({"viewport": PHONE, "has_touch": True, "is_mobile": True} if phone else {}))
        await page.goto(home(served))
        await choose(page, "Files")
        await expect(row(page, "notes.md")).to_be_visible()
        yield page, work


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("treeitem", name=name).last


async def names(page: Page) -> list[str]:
    return await page.locator(".tree-name:visible").all_inner_texts()


async def test_the_tree_is_walked_with_the_keyboard_and_files_are_shown_inert(tmp_path: Path) -> None:
    async with looking(tmp_path) as (page, _):
        panel = page.get_by_role("complementary", name="Workspace").or_(page.locator("#panel"))
        assert await names(page) == ["data", "evil.svg", "notes.md"]
        await row(page, "data").focus()
        await page.keyboard.press("ArrowRight")
        await expect(row(page, "table.csv")).to_be_visible()
        await expect(row(page, "data")).to_have_attribute("aria-expanded", "true")
        await page.keyboard.press("ArrowRight")
        await expect(row(page, "deep")).to_be_focused()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="table.csv")).to_be_focused()
        table = page.get_by_role("table")
        await expect(table.locator("td")).to_have_count(4)
        assert await table.locator("td").all_inner_texts() == ["Ann", 'one, "two"', "Bob", "a\nb"]
        await page.get_by_role("button", name="Source").click()
        await expect(page.locator(".line-numbers")).to_have_text("1\n2\n3\n4\n")
        await page.keyboard.press("Escape")
        await expect(row(page, "table.csv")).to_be_focused()
        await page.keyboard.press("Home")
        await page.keyboard.press("ArrowLeft")
        await expect(row(page, "table.csv")).to_have_count(0)
        await page.keyboard.press("End")
        await page.keyboard.press("Enter")
        await expect(panel.get_by_role("heading", name="Title")).to_be_visible()
        await page.keyboard.press("Escape")
        await row(page, "evil.svg").click()
        await expect(panel.locator(".numbered code")).to_contain_text("<script>")
        await shot(page, "workspace-file")
        await panel.get_by_role("button", name="Preview").click()
        await expect(panel.locator(".artefact-frame")).to_have_attribute("data-kind", "svg")
        await page.keyboard.press("Escape")
        search = page.get_by_role("searchbox", name="Find a file")
        await search.fill("BOOK")
        await expect(page.get_by_text("1 name found")).to_be_visible()
        await row(page, "data/deep/book.ipynb").click()
        await expect(panel.get_by_role("heading", name="Study")).to_be_visible()
        await expect(panel.get_by_text("printed")).to_be_visible()
        await expect(panel.get_by_text("This output is not shown here.")).to_be_visible()
        assert await page.evaluate("window.ran") is None, "nothing of a file runs"
        await page.keyboard.press("Escape")
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Menu")).to_be_focused()


async def test_files_are_put_there_renamed_removed_and_brought_back(tmp_path: Path) -> None:
    async with looking(tmp_path, phone=True) as (page, work):
        assert await page.locator("#panel").evaluate("one => one.offsetWidth") == PHONE["width"]
        await row(page, "data").locator(".tree-row").first.click()
        await expect(page.get_by_text("New files go into data")).to_be_visible()
        chosen = FilePayload(name="table.csv", mimeType="text/csv", buffer=b"new")
        other = FilePayload(name="other.txt", mimeType="text/plain", buffer=b"other")
        await page.locator("input[type=file][multiple]").last.set_input_files([chosen, other])
        await expect(page.get_by_role("heading", name="data/table.csv is already there")).to_be_visible()
        await page.get_by_role("button", name="Replace", exact=True).click()
        await expect(page.get_by_text("2 files uploaded.")).to_be_visible()
        assert (work / "data/table.csv").read_text() == "new" and (work / "data/other.txt").read_text() == "other"
        await page.get_by_role("button", name="Undo").click()
        await expect(page.get_by_text("Undone.")).to_be_visible()
        assert (work / "data/table.csv").read_text().startswith("name,note")
        await row(page, "other.txt").click()
        await page.get_by_role("button", name="Rename", exact=True).click()
        await page.get_by_role("textbox", name="New name").fill(".vscode")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("is not changed here")).to_be_visible()
        await page.get_by_role("button", name="Rename", exact=True).click()
        await page.get_by_role("textbox", name="New name").fill("better.txt")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="better.txt")).to_be_visible()
        await page.get_by_role("button", name="Back to the files").click()
        await row(page, "data").locator(".tree-row").first.focus()
        await row(page, "data").press("Delete")
        await page.get_by_role("button", name="Delete", exact=True).click()
        await expect(page.get_by_text("data was deleted.")).to_be_visible()
        assert not (work / "data").exists()
        await shot(page, "workspace-phone")
        await page.get_by_role("button", name="Undo").click()
        await expect(row(page, "data")).to_be_visible()
        assert (work / "data/better.txt").read_text() == "other"


async def test_what_a_run_writes_appears_and_opens_from_its_card(tmp_path: Path) -> None:
    writes = shell("mkdir made; printf one > made/new.txt; printf '# Other' > notes.md")
    async with looking(tmp_path, writes, "Done.") as (page, _):
        await row(page, "notes.md").click()
        await expect(page.locator("#panel").get_by_role("heading", name="Title")).to_be_visible()
        await say(page, "Write.")
        await expect(page.locator("#panel").get_by_role("heading", name="Other")).to_be_visible()
        await page.get_by_role("button", name="Back to the files").click()
        await expect(row(page, "made")).to_be_visible()
        await page.get_by_role("button", name="Close", exact=True).click()
        await page.get_by_role("button", name="Show made/new.txt").or_(page.get_by_title("Show made/new.txt")).click()
        await page.get_by_role("button", name="Open in the workspace").click()
        await expect(page.locator("#panel").get_by_role("heading", name="new.txt")).to_be_focused()
        await expect(page.locator("#panel").locator(".numbered code")).to_have_text("one")


async def test_a_file_of_a_message_opens_in_the_workspace(tmp_path: Path) -> None:
    async with looking(tmp_path, "Read.") as (page, work):
        sent = FilePayload(name="list.txt", mimeType="text/plain", buffer=b"milk")
        await page.locator("#composer input[type=file]").set_input_files(sent)
        await say(page, "Read it.")
        await expect(page.get_by_text("Read.", exact=True)).to_be_visible()
        await page.locator(".user-message").get_by_role("button", name="Open in the workspace").click()
        await expect(page.locator("#panel").get_by_role("heading", name="list.txt")).to_be_visible()
        await expect(page.locator("#panel").locator(".numbered code")).to_have_text("milk")
        assert (work / "list.txt").read_text() == "milk"


async def test_a_file_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    async with looking(tmp_path) as (page, work):
        for number in range(600):  # more than come at once
            (work / f"data/a{number:03}.txt").write_text("x")
        (work / "data/zz.txt").write_text("the last")
        asking = "path => document.dispatchEvent(new CustomEvent('open-in-workspace', {detail: {path}}))"
        await page.evaluate(asking, "data/zz.txt")
        await expect(page.locator("#panel").locator(".numbered code")).to_have_text("the last")
        await page.get_by_role("button", name="Back to the files").click()
        await page.evaluate(asking, "data/gone.txt")
        await expect(page.get_by_text("data/gone.txt is not in the workspace any more.")).to_be_visible()
