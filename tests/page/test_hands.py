"""The page in people's hands: two tabs, the keyboard alone, a phone, narrow, magnified, dark, without motion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Reply, Scripted
from parsing import Thought
from tests.support.nightly import at_night, only_at_night
from tests.support.page.browser import PHONE, WIDE, Locator, Page, browsing, choose, expect, home, say, shot
from tests.support.page.stories import held, let_go, shell, too_wide, turns
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

WIDE_ANSWER = (
    "## A heading\n\nSome `code`, a [link](https://example.com/" + "long/" * 30 + ") and a word: " + "x" * 400 + "\n\n"
    "```js\n" + "print(" + "1 + " * 80 + "1)\n```\n\n"
    "| one | two | three | four | five | six |\n|---|---|---|---|---|---|\n" + "| a long cell of words " * 6 + "|\n\n"
    "1. one\n   - two\n     - three\n"
)
NAME = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
EDITS = "```write_file\nnote.txt\nfirst line\nsecond line\n```"
BUILD = "printf '\\033[32mok\\033[0m %s\\n' " + "long" * 60 + "; echo begun; " + held()


def waiting(page: Page) -> Locator:
    return page.get_by_role("region", name="Waiting for you")


async def settled(page: Page) -> None:
    """What has just appeared can be pressed."""
    await expect(page.locator("#approvals .approval")).to_be_visible()
    await expect(page.locator("#approvals[data-settling]")).to_have_count(0)


@only_at_night  # by day a decision in another window is seen (test_page_approvals)
async def test_what_is_decided_in_one_tab_is_seen_in_the_other(tmp_path: Path) -> None:
    replies: list[Reply] = [shell("echo approved > yes.txt"), shell("echo never > no.txt"), "It was not done."]
    async with serving(tmp_path, Scripted(replies), approval_admin="ask") as served, browsing() as browser:
        context = await browser.context()
        one, other = await context.new_page(), await context.new_page()
        await one.goto(home(served))
        await say(one, "Write.")
        await settled(one)
        await other.goto(one.url)
        await settled(other)
        for tab in (one, other):
            await expect(waiting(tab).get_by_text("echo approved > yes.txt")).to_be_visible()
        await waiting(other).get_by_role("button", name="Approve").first.click()
        for tab in (one, other):
            await expect(waiting(tab).get_by_text("echo never > no.txt")).to_be_visible()
        assert (tmp_path / "work/yes.txt").read_text() == "approved\n"
        await settled(one)
        await waiting(one).get_by_role("button", name="Deny").first.click()
        await waiting(one).get_by_role("textbox").fill("Not that one.")
        await waiting(one).get_by_role("button", name="Deny").first.click()
        for tab in (one, other):
            await expect(turns(tab).get_by_text("It was not done.")).to_be_visible()
            await expect(waiting(tab).locator(".approval")).to_have_count(0)
        assert not (tmp_path / "work/no.txt").exists()


async def focused(page: Page, name: str) -> None:
    """Tab until a button of this name has the focus."""
    for _ in range(60):
        await page.keyboard.press("Tab")
        if await page.evaluate(NAME) == name:
            return
    raise AssertionError(f"the keyboard does not reach {name}")


@only_at_night
async def test_a_button_that_goes_takes_no_focus_with_it(tmp_path: Path) -> None:
    replies: list[Reply] = [shell(held()), "It is over.", shell("echo done > done.txt"), "It is done."]
    replies += [shell(held("never"))]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        box = page.get_by_role("textbox", name="Message")
        await say(page, "Wait.")
        await expect(box).to_be_focused()
        await page.locator("#composer").get_by_role("button", name="Stop").focus()
        let_go(tmp_path)
        await expect(turns(page).get_by_text("It is over.")).to_be_visible()
        await expect(box).to_be_focused()
        await page.get_by_label("Approvals").select_option("ask")
        await say(page, "Write.")
        await settled(page)
        await waiting(page).get_by_role("button", name="Approve once").click()
        await expect(turns(page).get_by_text("It is done.")).to_be_visible()
        await expect(box).to_be_focused()
        await page.get_by_label("Approvals").select_option("sandboxed")
        await say(page, "Wait for ever.")
        await turns(page).last.get_by_role("button", name="Stop command").press("Enter")
        await expect(turns(page).last.get_by_role("button", name="bash")).to_be_focused()


async def test_a_whole_turn_with_the_keyboard_alone(tmp_path: Path) -> None:
    replies: list[Reply] = [shell("echo by hand > hand.txt"), "Done by hand."]
    async with serving(tmp_path, Scripted(replies), approval_admin="ask") as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
        await page.keyboard.type("Do it.")
        await page.keyboard.press("Enter")
        await settled(page)
        await page.keyboard.press("Alt+a")
        await expect(page.locator("#approvals .approval")).to_be_focused()
        await page.keyboard.press("y")
        await expect(turns(page).get_by_text("Done by hand.")).to_be_visible()
        assert await page.evaluate("document.activeElement !== document.body"), "the focus is lost with the tray"
        await focused(page, "Settings")
        await page.keyboard.press("Enter")
        await expect(page.locator("#panel")).to_be_visible()
        assert await page.evaluate("document.activeElement.closest('#panel') !== null")
        await page.keyboard.press("Escape")
        await expect(page.locator("#panel")).to_be_hidden()
        await expect(page.get_by_role("button", name="Settings")).to_be_focused()


async def filled(page: Page, folder: Path, address: str) -> None:
    """A conversation with everything in it, up to a command that goes on; each state looked at."""
    await page.goto(address)
    assert await too_wide(page) == []
    await say(page, "Show me all you have, please, in one long line of words that does not end soon.")
    await expect(turns(page).get_by_text("A heading")).to_be_visible()
    await expect(turns(page).locator(".tail").last).to_contain_text("begun")
    assert await too_wide(page) == []
    let_go(folder)
    await expect(turns(page).get_by_text("It is over.")).to_be_visible()
    assert await too_wide(page) == []
    for name in ("Background jobs", "Sandboxed"):
        await choose(page, name)
        await expect(page.locator("#panel")).to_be_visible()
        assert await too_wide(page) == []
        await page.keyboard.press("Escape")
        await expect(page.locator("#panel")).to_be_hidden()


SIZES: dict[str, dict[str, Any]] = {
    "phone": {"viewport": PHONE, "has_touch": True, "is_mobile": True, "device_scale_factor": 2},
    "narrow": {"viewport": {"width": 320, "height": 640}, "has_touch": True, "is_mobile": True},
    "magnified": {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2},  # 1280 wide at 200 %
    "dark": {"viewport": WIDE, "color_scheme": "dark", "reduced_motion": "reduce"},
    "very-wide": {"viewport": {"width": 2560, "height": 1200}},
}


@pytest.mark.parametrize("size", at_night(tuple(SIZES), ("narrow", "dark")))
async def test_nothing_scrolls_sideways(tmp_path: Path, size: str) -> None:
    replies: list[Reply] = [
        (Thought("I think about it for a while."), WIDE_ANSWER, EDITS, "\n\n", *shell(BUILD)),
        "It is over.",
    ]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        page = await browser.page(**SIZES[size])
        await filled(page, tmp_path, home(served))
        await shot(page, f"all-{size}")
        if "is_mobile" in SIZES[size]:
            await page.get_by_role("button", name="Conversations").tap()
            await expect(page.locator("#sidebar")).to_be_visible()
            assert await too_wide(page) == []
            await shot(page, f"{size}-drawer")
        if size == "dark":
            moving = await page.evaluate(
                "document.getAnimations().filter((one) => one.playState === 'running' &&"
                " one.effect.getComputedTiming().duration > 1).length"
            )
            assert moving == 0
