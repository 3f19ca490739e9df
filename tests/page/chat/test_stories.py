"""The page as a whole: what people watch, leave, come back to and stop, in a real browser against a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Reply, Scripted
from parsing import Thought
from tests.support.page.browser import browsing, expect, home, say, shot
from tests.support.page.stories import held, let_go, pauses, shell, turns
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

STEPS = 'for i in 1 2 3; do echo "step $i"; done; ' + held("first") + "; echo step 4; " + held() + "; echo over"


async def test_words_and_a_command_are_seen_while_they_come(tmp_path: Path) -> None:
    first, second = pauses(2)
    replies: list[Reply] = [
        (Thought("How shall I do it?"), "I shall ", first, "ask the shell.\n\n", *shell(STEPS)),
        ("All ", second, "done."),
    ]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Do it.")
        turn = turns(page)
        await expect(turn.get_by_text("I shall")).to_be_visible()
        await expect(turn.get_by_text("ask the shell.")).to_have_count(0)
        first.event.set()
        await expect(turn.get_by_text("I shall ask the shell.")).to_be_visible()
        await expect(turn.locator(".tail")).to_contain_text("step 3")
        await expect(turn.locator(".tail")).not_to_contain_text("step 4")
        let_go(tmp_path, "first")
        await expect(turn.locator(".tail")).to_contain_text("step 4")
        let_go(tmp_path)
        await expect(turn.get_by_text("All", exact=True)).to_be_visible()
        second.event.set()
        await expect(turn.get_by_text("All done.")).to_be_visible()
        await shot(page, "turn-done")


async def test_a_page_that_is_loaded_anew_goes_on_where_the_run_is(tmp_path: Path) -> None:
    first, second = pauses(2)
    replies: list[Reply] = [
        ("Before ", first, "the call.\n\n", *shell("echo one; " + held() + "; echo two")),
        ("After ", second, "it."),
    ]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Go.")
        turn = turns(page)
        await expect(turn.get_by_text("Before")).to_be_visible()
        await page.reload()  # in the middle of a sentence
        await expect(turn.get_by_text("Before")).to_be_visible()
        first.event.set()
        await expect(turn.get_by_text("Before the call.", exact=True)).to_have_count(1)
        await expect(turn.locator(".tail")).to_contain_text("one")
        await page.reload()  # in the middle of a command
        await expect(turn.locator(".tail")).to_contain_text("one")
        await expect(turn.locator(".card")).to_have_count(1)
        let_go(tmp_path)
        await expect(turn.get_by_text("After", exact=True)).to_be_visible()
        await page.reload()  # between two words
        second.event.set()
        await expect(turn.get_by_text("After it.", exact=True)).to_have_count(1)
        await expect(turn.get_by_text("Before the call.", exact=True)).to_have_count(1)
        await expect(turn.get_by_text("Go.", exact=True)).to_have_count(1)
        await expect(turn).to_have_count(1)


async def test_a_run_goes_on_without_its_page_and_shows_in_another(tmp_path: Path) -> None:
    pause, later = pauses(2)
    replies: list[Reply] = [("One ", pause, "two ", later, "three."), "And four."]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        context = await browser.context()
        page = await context.new_page()
        await page.goto(home(served))
        await say(page, "Count.")
        await expect(turns(page).get_by_text("One")).to_be_visible()
        address = page.url
        await page.close()
        pause.event.set()
        one, other = await context.new_page(), await context.new_page()
        for tab in (one, other):
            await tab.goto(address)
            await expect(turns(tab).get_by_text("One two")).to_be_visible()
        later.event.set()
        for tab in (one, other):
            await expect(turns(tab).get_by_text("One two three.", exact=True)).to_have_count(1)
        await say(other, "More.")
        for tab in (one, other):
            await expect(turns(tab).get_by_text("More.", exact=True)).to_have_count(1)
            await expect(turns(tab).get_by_text("And four.", exact=True)).to_have_count(1)


async def test_what_is_stopped_ends_with_its_command(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([shell("echo begun; " + held())])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Go.")
        await expect(turns(page).locator(".tail")).to_contain_text("begun")
        await page.get_by_role("button", name="Stop", exact=True).click()
        await expect(turns(page).get_by_text("Stopped.", exact=True)).to_be_visible()
        (run,) = (await served.client.get("/sessions")).json()["sessions"][:1]
        assert run
        await shot(page, "turn-stopped")
