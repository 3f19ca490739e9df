"""Folders, pins and the archive in the list of conversations, and the turn that a search leads to."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.page.browser import Page, browsing, expect, home, shot
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.usefixtures("chromium")
TURNS = 25  # more than a page loads at first


async def choose(page: Page, title: str, action: str) -> None:
    await page.get_by_role("button", name=f"More for {title}").focus()
    await page.keyboard.press("Enter")
    await page.get_by_role("menuitem", name=action, exact=True).click()


async def folders_of(served: Served) -> dict[str, str]:
    return {row["id"]: row["name"] for row in (await served.client.get("/folders")).json()["folders"]}


async def test_conversations_are_put_into_folders_pinned_and_archived(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."] * 3)) as served, browsing() as browser:
        for words in ("Roses", "Moss", "Fern"):
            await served.chat(words)
        page = await browser.page()
        await page.goto(home(served))
        await choose(page, "Roses", "Move to folder")
        await page.get_by_role("combobox", name="Move to folder").select_option("new")
        await page.get_by_role("button", name="Move", exact=True).click()
        name = page.get_by_role("textbox", name="Name of the folder")
        await expect(name).to_be_focused()
        await page.keyboard.type("<i>Garden</i>")
        await page.keyboard.press("Enter")
        folder = page.get_by_role("button", name="<i>Garden</i> 1")
        await expect(folder).to_have_attribute("aria-expanded", "false")
        await folder.click()
        inside = page.get_by_role("list", name="<i>Garden</i>")
        await expect(inside.get_by_role("link")).to_have_text(["Roses"])

        await page.get_by_role("link", name="Moss").drag_to(page.locator(".folder"))
        await expect(inside.get_by_role("link")).to_have_text(["Moss", "Roses"])
        await choose(page, "Fern", "Pin")
        await expect(page.get_by_role("list", name="Pinned").get_by_role("link")).to_have_text(["Fern"])
        await shot(page, "sessions-folders")
        await choose(page, "Roses", "Archive")
        await expect(inside.get_by_role("link")).to_have_text(["Moss"])
        await page.get_by_role("button", name="Archive", exact=True).click()
        await expect(page.locator(".session-link")).to_have_text(["Roses"])
        await choose(page, "Roses", "Restore from the archive")
        await page.get_by_role("button", name="Back to the conversations").click()
        await expect(inside.get_by_role("link")).to_have_text(["Moss", "Roses"])

        [key] = await folders_of(served)  # another page renames it
        await served.client.patch(f"/folders/{key}", json={"name": "Plants"})
        await expect(page.get_by_role("button", name="Plants 2")).to_be_visible()
        await page.get_by_role("button", name="More for the folder Plants").click()
        await page.get_by_role("menuitem", name="Delete folder").click()
        await page.get_by_role("button", name="Delete", exact=True).click()
        await expect(page.get_by_role("list", name="Today").get_by_role("link")).to_have_text(["Moss", "Roses"])
        assert await folders_of(served) == {}


async def test_a_search_leads_to_the_turn_that_it_has_found(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Moss is green."] + ["Yes."] * TURNS)) as served, browsing() as browser:
        session = (await served.chat("First"))[0]["session"]
        for number in range(TURNS):
            await served.chat(f"Question {number}", session=session)
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("searchbox").fill("MOSS")
        await expect(page.locator(".session-snippet mark")).to_have_text("Moss")
        await page.get_by_role("link", name="First").click()
        found = page.locator(".run").first
        await expect(found).to_be_focused()
        await expect(found.get_by_text("Moss is green.")).to_be_in_viewport()


async def test_the_list_hides_and_stays_hidden(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("button", name="Hide the list").click()
        shows = page.get_by_role("button", name="Conversations")
        await expect(shows).to_be_focused()
        await expect(page.locator("#sidebar")).to_be_hidden()
        await page.reload()
        await expect(page.locator("#sidebar")).to_be_hidden()
        await page.keyboard.press("Control+b")
        await expect(page.locator("#sidebar")).to_be_visible()
        await page.keyboard.press("Control+b")
        await page.keyboard.press("Control+k")
        await expect(page.get_by_role("searchbox")).to_be_focused()
        await page.set_viewport_size({"width": 390, "height": 844})
        await expect(page.locator("#sidebar")).to_be_hidden()
        await page.keyboard.press("Control+b")
        await expect(page.get_by_role("button", name="Close")).to_be_visible()


async def test_a_conversation_is_shared_by_a_link_that_can_be_revoked(tmp_path: Path) -> None:
    script = [
        "<think>Hm.</think>Look.\n```bash\necho from the command; seq 1 30000\n```",
        "It **printed** <b>that</b>.",
    ]
    async with serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        await served.chat("<img src=x onerror=alert(1)> Show me", approval="auto")
        page = await browser.page()
        await page.goto(home(served))
        await choose(page, "<img", "Share")
        dialog = page.get_by_role("dialog", name="Share this conversation")
        await dialog.get_by_role("button", name="Create link").click()
        link = await dialog.get_by_label("Link", exact=True).input_value()
        await shot(page, "share-dialog")

        asked: list[str] = []
        reader = await browser.page()
        reader.on("request", lambda request: asked.append(request.url.removeprefix(home(served))))
        await reader.goto(link)
        await expect(reader.get_by_role("heading", level=1)).to_contain_text("<img src=x")
        await expect(reader.locator("strong", has_text="printed")).to_be_visible()
        await expect(reader.get_by_text("from the command").first).to_be_attached()
        await expect(reader.get_by_role("textbox")).to_have_count(0)
        await expect(reader.get_by_text("Hm.")).to_have_count(0)
        for button in await reader.get_by_role("button").all():  # none of them leads to the API
            await button.click()
        await shot(reader, "shared-page")
        assert {one.split("/")[1] for one in asked} == {"shared", "page"}, asked

        await dialog.get_by_role("button", name="Revoke").click()
        await expect(dialog.get_by_text("There is no link")).to_be_visible()
        browser.expected.append("404")
        await reader.reload()
        await expect(reader.get_by_role("heading", name="This link does not work")).to_be_visible()
