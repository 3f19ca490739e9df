"""The conversation on the page: its history, where the reader is in it, what waits, what failed, and the address."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest
from playwright.async_api import FilePayload

from app.core.provider import ProviderFailed
from app.models.scripted import Pause, Raise, Scripted
from tests.support.models.pictures import CAT
from tests.support.page.browser import PHONE, Page, browsing, expect, home, say, shot
from tests.support.page.stories import begun
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

LONG = "\n\n".join(f"Paragraph {number} of a long answer." for number in range(40))
DOWN = Raise(ProviderFailed("model_down", "The model's server is down. Start it, then try again.", retryable=True))


async def from_end(page: Page) -> float:
    """How far the reader is from the end, in pixels."""
    return float(
        await page.locator("#conversation").evaluate("(one) => one.scrollHeight - one.scrollTop - one.clientHeight")
    )


async def test_a_long_history_is_paged_and_the_reader_stays_where_they_are(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([LONG], repeat=True)) as served, browsing() as browser:
        session = await begun(served, 25)
        page = await browser.page()
        await page.goto(f"{home(served)}/#{session}")
        turns = page.get_by_role("article", name="Run")
        await expect(turns).to_have_count(20)
        await expect(turns.last.locator(".turn-foot")).to_be_in_viewport()
        await shot(page, "conversation-long")

        earlier = page.get_by_role("button", name="Show earlier")
        await earlier.evaluate("(one) => { one.closest('#conversation').scrollTop = 0; }")
        await expect(page.get_by_role("button", name="Scroll to the end")).to_be_visible()
        await earlier.click()
        await expect(turns).to_have_count(25)
        await expect(earlier).to_be_hidden()
        await expect(page.get_by_text("Question 5.", exact=True)).to_be_in_viewport()
        await expect(page.get_by_text("Question 4.", exact=True)).not_to_be_in_viewport()

        await page.get_by_text("Question 12.", exact=True).evaluate("(one) => one.scrollIntoView()")
        await page.reload()
        await expect(turns).to_have_count(20)
        await expect(page.get_by_text("Question 12.", exact=True)).to_be_in_viewport()
        await page.get_by_role("button", name="Scroll to the end").click()
        await expect(turns.last.locator(".turn-foot")).to_be_in_viewport()


async def test_what_is_new_is_followed_unless_the_reader_looks_elsewhere(tmp_path: Path) -> None:
    more, rest = asyncio.Event(), asyncio.Event()
    reply = (LONG, Pause(more), LONG, Pause(rest), "\n\nThe last word.")
    async with serving(tmp_path, Scripted([reply])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Write much.")
        await expect(page.get_by_text("Paragraph 39 of")).to_be_in_viewport()
        assert await from_end(page) < 2
        await page.locator("#conversation").hover()
        await page.mouse.wheel(0, -600)
        await expect(page.get_by_role("button", name="Scroll to the end", exact=True)).to_be_visible()
        place = await page.locator("#conversation").evaluate("(one) => one.scrollTop")

        more.set()
        new = page.get_by_role("button", name="Scroll to the end: there is something new")
        await expect(new).to_be_visible()
        await expect(page.get_by_text("Paragraph 39 of")).to_have_count(2)
        assert await page.locator("#conversation").evaluate("(one) => one.scrollTop") == place
        await shot(page, "conversation-new")
        await new.click()
        await expect(new).to_be_hidden()
        rest.set()
        await expect(page.get_by_text("The last word.")).to_be_in_viewport()
        await expect(page.locator(".turn-foot")).to_be_in_viewport()


async def test_words_in_between_are_read_soon_or_wait_for_their_turn(tmp_path: Path) -> None:
    soon, first = asyncio.Event(), asyncio.Event()
    script = [(Pause(soon), "It begins", Pause(first), " and ends."), "It has read both.", "And the next turn."]
    async with serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Begin.")
        await expect(page.locator(".working").get_by_text("Thinking")).to_be_visible()
        soon.set()
        await expect(page.get_by_text("It begins")).to_be_visible()
        await expect(page.locator(".working").get_by_text("Thinking")).to_be_hidden()
        await page.get_by_role("textbox", name="Message").fill("Later, please.")
        await page.get_by_role("combobox", name="When the agent reads it").select_option("queue")
        await page.get_by_role("button", name="Send").click()
        turns = page.get_by_role("article", name="Run")
        await expect(turns.nth(1).get_by_text("Queued")).to_be_visible()

        await page.get_by_role("textbox", name="Message").fill("Be brief.")
        await page.get_by_role("combobox", name="When the agent reads it").select_option("steer")
        await page.get_by_role("button", name="Send").click()
        await expect(turns.first.get_by_text("The agent reads this after the current step")).to_be_visible()
        await shot(page, "conversation-waiting")

        other = await page.context.new_page()
        await other.goto(page.url)
        there = other.get_by_role("article", name="Run")
        await expect(there.nth(1).get_by_text("Queued")).to_be_visible()

        first.set()
        await expect(turns.first.get_by_text("It has read both.")).to_be_visible()
        await expect(turns.last.get_by_text("And the next turn.")).to_be_visible()
        await expect(there.last.get_by_text("And the next turn.")).to_be_visible()
        for words in ("Begin.", "Be brief.", "Later, please."):
            await expect(page.locator("#conversation").get_by_text(words, exact=True)).to_have_count(1)
        await expect(page.get_by_text("The agent reads this after the current step")).to_have_count(0)
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()


async def test_what_waits_can_be_taken_back(tmp_path: Path) -> None:
    first = asyncio.Event()
    async with (
        serving(tmp_path, Scripted([("It begins", Pause(first), " and ends.")])) as served,
        browsing() as browser,
    ):
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Begin.")
        await expect(page.get_by_text("It begins")).to_be_visible()
        await page.get_by_role("textbox", name="Message").fill("Later.")
        await page.get_by_role("combobox", name="When the agent reads it").select_option("queue")
        await page.get_by_role("button", name="Send").click()
        await page.get_by_role("button", name="Cancel").click()
        await expect(
            page.get_by_role("article", name="Run").last.get_by_text("Cancelled before it began")
        ).to_be_visible()
        first.set()
        await expect(page.get_by_text("It begins and ends.")).to_be_visible()
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()


async def test_a_failure_says_what_to_do_and_can_be_tried_again(tmp_path: Path) -> None:
    script = [(DOWN,)] * 5 + ["Now it answers."]
    async with serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        picture = FilePayload(name="cat.png", mimeType="image/png", buffer=CAT)
        await page.locator("#composer input[type=file]").set_input_files([picture])
        await expect(page.get_by_role("list", name="Attached files")).to_contain_text("cat.png")
        await say(page, "Are you there?")
        await expect(page.get_by_text("The model's server is down. Start it")).to_be_visible()
        notices = page.locator('.note[data-code="retry"]')
        await expect(notices).to_have_count(1)
        await expect(notices).to_contain_text("(attempt 5 of 5)")
        await shot(page, "conversation-failed")
        again = page.get_by_role("button", name="Try again")
        async with page.expect_request("**/chat") as asked:
            await again.click()
        words, sent = json.loads((await asked.value).post_data or "")["message"]
        assert (words["text"], base64.b64decode(sent["data"])) == ("Are you there?", CAT)
        await expect(page.get_by_text("Now it answers.")).to_be_visible()
        await expect(page.locator("#conversation").get_by_text("Are you there?", exact=True)).to_have_count(2)
        await expect(again).to_be_hidden()


async def test_the_address_names_the_conversation(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["First.", "Second.", "Third."])) as served, browsing() as browser:
        one, other = await begun(served, 1), await begun(served, 1)
        page = await browser.page()
        await page.goto(f"{home(served)}/#{one}")
        await expect(page.locator("#conversation").get_by_text("First.")).to_be_visible()
        await page.goto(f"{home(served)}/#{other}")
        await expect(page.locator("#conversation").get_by_text("Second.")).to_be_visible()
        await page.go_back()
        await expect(page.locator("#conversation").get_by_text("First.")).to_be_visible()
        await page.go_forward()
        await expect(page.locator("#conversation").get_by_text("Second.")).to_be_visible()

        browser.expected.append("404")
        await page.goto(f"{home(served)}/#ses_00000000000000000000")
        await expect(page.get_by_role("alert").get_by_text("does not exist")).to_be_visible()
        await page.get_by_role("button", name="Start a new conversation").click()
        await expect(page.get_by_role("heading", name="What would you like to do?")).to_be_visible()
        await expect(page).to_have_url(f"{home(served)}/")
        await page.get_by_role("button", name="Count from 1 to 10").click()
        await expect(page.get_by_role("textbox", name="Message")).to_have_value(
            "Count from 1 to 10 in the shell, one number a second."
        )

        await page.goto(f"{home(served)}/#ses_11111111111111111111")
        await expect(page.get_by_role("alert").get_by_text("does not exist")).to_be_visible()
        await say(page, "Then here.")  # in a new one
        await expect(page.locator("#conversation").get_by_text("Third.")).to_be_visible()
        assert await page.evaluate("location.hash.slice(1)") not in ("", "ses_11111111111111111111", one, other)


async def test_a_conversation_that_was_deleted_elsewhere_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["First."])) as served, browsing() as browser:
        session = await begun(served, 1)
        page = await browser.page()
        await page.goto(f"{home(served)}/#{session}")
        await expect(page.locator("#conversation").get_by_text("First.")).to_be_visible()
        browser.expected.append("404|ERR_INTERNET_DISCONNECTED")
        assert (await served.client.delete(f"/sessions/{session}")).is_success
        await page.context.set_offline(True)  # the next connection learns it
        await page.context.set_offline(False)
        await expect(page.get_by_role("alert").get_by_text("does not exist")).to_be_visible()
        await expect(page.get_by_text("First.")).to_have_count(0)


async def test_a_message_behind_a_long_answer_is_seen_where_it_was_sent(tmp_path: Path) -> None:
    long = "".join(f"Paragraph {number}.\n\n" for number in range(40))
    async with serving(tmp_path, Scripted([long, "The second answer."])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Write much.")
        await expect(page.get_by_text("Paragraph 39.")).to_be_in_viewport()
        await say(page, "And now?")
        await expect(page.get_by_text("The second answer.")).to_be_in_viewport()
        await expect(page.get_by_text("And now?").first).to_be_in_viewport()
        await expect(page.get_by_role("button", name="Scroll to the end")).to_be_hidden()


async def test_the_outline_of_a_long_conversation_leads_to_its_places(tmp_path: Path) -> None:
    headed = "## First\n\n" + LONG + "\n\n## Second `x`\n\nAnd.\n\n### Third\n\nEnd."
    script = Scripted([*[LONG] * 7, headed, *[LONG] * 17], repeat=True)
    async with serving(tmp_path, script) as served, browsing() as browser:
        page = await browser.page()
        opener = page.get_by_role("button", name="Outline")
        outline = page.locator(".outline")
        here = outline.locator("[aria-current]")
        short = await begun(served, 7)
        await page.goto(f"{home(served)}/#{short}")
        await expect(page.get_by_role("article", name="Run")).to_have_count(7)
        await expect(opener).to_be_hidden()
        await say(page, "Question 7.")
        await opener.click()
        await expect(outline.get_by_role("button")).to_have_text(
            [*(f"Question {turn}." for turn in range(8)), "First", "Second x", "Third"]
        )
        await expect(here).to_have_text("Third")
        await outline.get_by_role("button", name="Second x").click()
        await expect(page.get_by_role("heading", name="Second x")).to_be_in_viewport()
        await expect(page.get_by_role("heading", name="Second x")).to_be_focused()
        await page.locator("#conversation").evaluate("(one) => { one.scrollTop -= 100; }")
        await expect(here).to_have_text("First")
        await shot(page, "outline-headings")

        session = await begun(served, 45)
        await page.goto(f"{home(served)}/#{session}")
        await expect(page.get_by_role("article", name="Run")).to_have_count(20)
        await expect(outline.get_by_role("button")).to_have_count(45)
        await expect(here).to_have_text("Question 44.")
        await expect(outline.get_by_title("Earlier message")).to_have_count(25)
        await here.focus()  # the one stop of the list
        await page.keyboard.press("Home")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Question 1.", exact=True).first).to_be_in_viewport()
        await expect(page.get_by_role("article", name="Run")).to_have_count(45)
        await expect(here).to_have_text("Question 1.")
        await expect(outline.get_by_title("Earlier message")).to_have_count(0)
        await page.set_viewport_size(PHONE)
        await opener.click(force=True) if await outline.is_hidden() else None
        await shot(page, "outline-phone")
        await outline.get_by_role("button", name="Question 30.").click()
        await expect(outline).to_be_hidden()  # it lay over the conversation
        await expect(page.locator(".user-text").get_by_text("Question 30.", exact=True)).to_be_in_viewport()
