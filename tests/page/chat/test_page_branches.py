"""Branches on the page: a message edited, an answer given again, branches switched, two models compared."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app.models.scripted import Pause, Reply, Scripted
from tests.support.models.endpoints import model_server
from tests.support.nightly import at_night
from tests.support.page.axe import LOOKS, page_for_axe, violations
from tests.support.page.browser import STORY_S, Locator, Page, browsing, expect, held_back, home, say, shot
from tests.support.page.windows import ALONE
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.usefixtures("chromium")


async def two_turns(page: Page, served: Served) -> Locator:
    """The last of two turns."""
    await page.goto(home(served))
    chat = page.locator("#conversation")
    await say(page, "Roses?")
    await expect(chat.get_by_text("Roses are red.")).to_be_visible()
    await say(page, "Violets?")
    await expect(chat.locator(".turn-foot")).to_have_count(2)
    return chat.get_by_role("article", name="Run").last


async def test_messages_are_edited_by_keyboard(tmp_path: Path) -> None:
    script = ["Roses are red.", "Violets are blue.", "Moss is green."]
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        page = await browser.page()
        turn, chat = await two_turns(page, served), page.locator("#conversation")
        first = page.url
        await turn.get_by_role("button", name="Edit message").focus()
        await page.keyboard.press("Enter")
        box = turn.get_by_role("textbox", name="Edit message")
        await expect(box).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(turn.get_by_role("button", name="Edit message")).to_be_focused()
        await page.keyboard.press("Enter")
        await box.fill("Moss?")
        await shot(page, "branches-edit")
        await box.press("Enter")
        await expect(chat.get_by_text("Moss is green.")).to_be_visible()
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
        await expect(chat.get_by_text("Roses are red.")).to_be_visible()
        await expect(chat.get_by_text("Violets are blue.")).to_have_count(0)
        await expect(page).not_to_have_url(first)
        await expect(turn.get_by_role("group", name="Branches of this message")).to_contain_text("2 / 2")
        links = page.locator(".session-link")
        await expect(links).to_have_count(1)
        await expect(links).to_have_attribute("aria-current", "page")


async def test_answers_are_given_again_and_branches_switched(tmp_path: Path) -> None:
    script = ["Roses are red.", "Violets are blue.", "Violets are small."]
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        page, other = await browser.page(), await browser.page()
        turn, chat = await two_turns(page, served), page.locator("#conversation")
        first = page.url
        await other.goto(first)  # the same person's
        await expect(other.get_by_text("Violets are blue.")).to_be_visible()
        await turn.get_by_role("button", name="Answer again or compare").click()
        item = await page.get_by_role("menuitem", name="Answer again", exact=True).bounding_box()
        list_of = await page.locator("#sidebar").bounding_box()
        assert item and list_of and item["x"] > list_of["width"], "the menu does not cover the list"
        await page.get_by_role("menuitem", name="Answer again", exact=True).click()
        await expect(chat.get_by_text("Violets are small.")).to_be_visible()
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
        switch = turn.get_by_role("group", name="Branches of this message")
        await expect(switch).to_contain_text("2 / 2")
        await expect(other.locator(".branch-count")).to_have_text("1 / 2")

        await switch.get_by_role("button", name="Previous branch").focus()
        await page.keyboard.press("Enter")
        await expect(chat.get_by_text("Violets are blue.")).to_be_visible()
        await expect(page).to_have_url(first)
        await expect(switch.get_by_role("button", name="Next branch")).to_be_focused()
        await expect(page.locator(".session-link")).to_have_attribute("aria-current", "page")
        await shot(page, "branches-switch")
        await page.keyboard.press("ArrowRight")
        await expect(chat.get_by_text("Violets are small.")).to_be_visible()
        await page.go_back()
        await expect(chat.get_by_text("Violets are blue.")).to_be_visible()


async def test_files_go_with_an_edited_message(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(["Read.", "Read well."])) as served:
        file = {"filename": "notes.txt", "file_data": "data:text/plain;base64,aGVsbG8="}
        message = [{"type": "text", "text": "Read it"}, {"type": "file", "file": file}]
        session = (await served.chat(message))[0]["session"]
        async with browsing() as browser:
            page = await browser.page()
            await page.goto(f"{home(served)}/#{session}")
            turn = page.get_by_role("article", name="Run")
            await turn.get_by_role("button", name="Edit message").click()
            await expect(turn.get_by_text("Its file is sent again.")).to_be_visible()
            await turn.get_by_role("textbox", name="Edit message").fill("Read it well")
            await turn.get_by_role("button", name="Send").click()
            await expect(turn.get_by_text("Read well.")).to_be_visible()
            await expect(turn.locator(".user-files")).to_contain_text("notes.txt")


async def test_an_answer_that_is_over_before_the_page_listens_is_shown(tmp_path: Path) -> None:
    script = ["Roses are red.", "Violets are blue."]
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        page = await browser.page()
        await page.add_init_script(ALONE)  # so that the test sees the requests of the feed
        await page.goto(home(served))
        await say(page, "Flowers?")
        turn = page.get_by_role("article", name="Run")
        await expect(turn.get_by_text("Roses are red.")).to_be_visible()
        async with held_back(page, "**/events?session=*"):
            await turn.get_by_role("button", name="Answer again or compare").click()
            async with page.expect_response("**/chat") as begun:
                await page.get_by_role("menuitem", name="Answer again", exact=True).click()
            run = (await (await begun.value).json())["run"]
            await served.services.runs.ended(run)
        await expect(turn.get_by_text("Violets are blue.")).to_be_visible()


async def test_a_refused_branch_is_explained_and_the_text_kept(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(STORY_S),
        serving(tmp_path, Scripted(["Roses are red."])) as served,
        browsing() as browser,
    ):
        page = await browser.page()
        browser.expected.append("503")
        await page.goto(home(served))
        await say(page, "Roses?")
        turn = page.get_by_role("article", name="Run")
        await expect(turn.locator(".turn-foot")).to_be_visible()
        refusal = {"error": {"code": "storage_failed", "message": "The disk is full."}}
        await page.route("**/fork", lambda route: route.fulfill(status=503, json=refusal))
        await turn.get_by_role("button", name="Edit message").click()
        box = turn.get_by_role("textbox", name="Edit message")
        await box.fill("Violets?")
        await turn.get_by_role("button", name="Send").click()
        await expect(turn.get_by_role("alert")).to_have_text("The disk is full.")
        await expect(box).to_have_value("Violets?")


async def test_two_models_are_compared_and_one_goes_on(tmp_path: Path) -> None:
    held = asyncio.Event()
    slow: Reply = ("A first ", Pause(held), "answer.")
    script = ["Roses are red.", slow, "A second answer.", "Good."]
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        chat = page.locator("#conversation")
        await say(page, "Roses?")
        await expect(chat.locator(".turn-foot")).to_be_visible()
        await page.get_by_role("textbox", name="Message").fill("And violets?")
        await page.get_by_role("button", name="Compare two models").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_label("First model")).to_be_focused()
        await shot(page, "branches-compare-choice")
        await dialog.get_by_role("button", name="Compare").click()
        columns = page.locator(".compare-column")
        await expect(columns).to_have_count(2)
        await expect(columns.first).to_contain_text("A first")
        await expect(columns.last).to_contain_text("A second answer.")
        await expect(columns.last.get_by_role("button", name="Stop")).to_be_hidden()
        await shot(page, "branches-compare")
        await page.set_viewport_size({"width": 390, "height": 844})
        await shot(page, "branches-compare-phone")
        above, below = await columns.first.bounding_box(), await columns.last.bounding_box()
        assert above and below and above["x"] == below["x"] and above["y"] + above["height"] <= below["y"]
        await columns.first.get_by_role("button", name="Stop").click()
        await expect(columns.first).to_contain_text("Stopped.")
        await columns.last.get_by_role("button", name="Continue with this one").click()
        await expect(columns).to_have_count(0)
        await expect(chat.get_by_text("A second answer.")).to_be_visible()
        await expect(chat.locator(".branch-count")).to_have_text("2 / 2")
        await say(page, "Good?")
        await expect(chat.get_by_text("Good.", exact=True)).to_be_visible()


async def test_calls_of_both_compared_answers_ask_for_approval(tmp_path: Path) -> None:
    said = json.dumps({"name": "bash", "arguments": {"command": "touch first.txt"}})
    script = [f"<tool_call>{said}</tool_call>", f"<tool_call>{said.replace('first', 'second')}</tool_call>"]
    model = Scripted([*script, "Done.", "Done."])
    async with (
        asyncio.timeout(STORY_S),
        model_server("qwen") as server,
        serving(tmp_path, model, None, approval_admin="ask") as served,
        browsing() as browser,
    ):
        await served.client.post("/endpoints", json={"name": "lab", "url": server.base_url})
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("textbox", name="Message").fill("Go")
        await page.get_by_role("button", name="Compare two models").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_label("Second model")).to_have_value("lab/qwen")
        await dialog.get_by_label("Second model").select_option("default/scripted")
        await dialog.get_by_role("button", name="Compare").click()
        columns = page.locator(".compare-column")
        await expect(page.get_by_text("2 calls are waiting for you")).to_be_visible()
        for _ in range(2):
            tray = page.locator("#approvals:not([data-settling])")
            await tray.get_by_role("button", name="Approve once", exact=True).click()
        for column in (columns.first, columns.last):
            await expect(column.locator(".answer")).to_contain_text("Done.")
        await expect(columns).to_have_count(2)
        await columns.first.get_by_role("button", name="Continue with this one").click()
        turn = page.get_by_role("article", name="Run")
        await turn.get_by_role("button", name="Answer again or compare").click()
        await page.get_by_role("menuitem", name="Answer again with another model").click()
        await expect(dialog.get_by_label("Model")).to_have_value("lab/qwen")
        await dialog.get_by_role("button", name="Answer again").click()
        await expect(turn.get_by_text("Hi", exact=True)).to_be_visible()
        await expect(turn.locator(".branch-count")).to_have_text("3 / 3")
        assert server.chats[-1].json["model"] == "qwen"
        await expect(page.get_by_role("button", name="Model:")).to_contain_text("qwen")


@pytest.mark.parametrize("look", at_night(tuple(LOOKS), ("phone",)))
async def test_axe_finds_nothing_wrong_with_branches(tmp_path: Path, look: str) -> None:
    script = ["Roses are red.", "Violets are blue.", "Moss is green.", "One answer.", "Another answer."]
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        page = await page_for_axe(browser, **LOOKS[look])
        turn = await two_turns(page, served)
        await turn.get_by_role("button", name="Edit message").click()
        found = await violations(page, "edit")
        await turn.get_by_role("textbox", name="Edit message").press("Enter")
        await expect(turn.locator(".branch-count")).to_have_text("2 / 2")
        await expect(turn.locator(".turn-foot")).to_be_visible()
        menu = turn.get_by_role("button", name="Answer again or compare")
        await menu.click()
        found += await violations(page, "menu")
        await shot(page, f"branches-menu-{look}")
        await page.get_by_role("menuitem", name="Compare two models").click()
        found += await violations(page, "choice")
        await page.get_by_role("dialog").get_by_role("button", name="Compare").click()
        await expect(page.get_by_text("Another answer.")).to_be_visible()
        await expect(page.locator(".compare .turn-foot")).to_have_count(2)
        await expect(page.locator(".runs > .run")).to_have_count(2)
        await expect(page.locator(".runs > .run").last).to_be_hidden()
        found += await violations(page, "compare")
        await shot(page, f"branches-compare-{look}")
        assert not found
