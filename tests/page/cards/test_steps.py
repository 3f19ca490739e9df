"""The calls of a turn: a line once they are over, one place to decide, diffs and formulas as they should look."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.core.provider import CallForm
from app.models.scripted import Reply, Scripted
from parsing import Call, Thought
from tests.support.page.browser import PHONE, STORY_S, browsing, expect, home, say
from tests.support.page.stories import begun, cards, held, let_go, page_of_turn, turns
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

WRITTEN = "".join(f"line_{number} = {number}\n" for number in range(5))
LONG = 8  # turns of a conversation that has an outline
READ_MISSING = Call(1, "read_file", {"path": "gone.txt"}, "native")
LISTS = [Call(at, "list_files", {"path": ".", "pattern": one}, "native") for at, one in enumerate(("a*", "b*"), 2)]


def bash(command: str) -> Call:
    return Call(0, "bash", {"command": command}, "native")


def write(path: str, content: str) -> Call:
    return Call(0, "write_file", {"path": path, "content": content}, "native")


STEPS: tuple[Reply, ...] = (
    ("First I look.", bash("echo one")),
    (Thought("And now?"), "Then I write.", write("feed.py", WRITTEN), READ_MISSING, *LISTS),
    (bash(f"echo begun; {held()}; true"),),
    "It is done.",
)


async def test_the_calls_of_a_turn_are_a_line_once_it_has_ended(tmp_path: Path) -> None:
    async with page_of_turn(tmp_path, *STEPS) as (_, _, page):
        line = page.locator(".steps-line")
        await expect(cards(page, 5).locator(".tail")).to_contain_text("begun")
        await expect(line).to_have_count(0)
        await expect(cards(page, 1)).to_contain_text("2 more changed lines")
        let_go(tmp_path)
        await expect(line).to_contain_text("6 steps")
        await expect(line).to_contain_text("Ran 2 commands, wrote 1 file, used tools 2 times")
        await expect(line).to_contain_text("1 failed")
        await expect(page.get_by_text("First I look.")).to_be_visible()
        await expect(page.get_by_text("It is done.")).to_be_visible()
        await expect(page.get_by_text("Then I write.")).to_be_hidden()
        await expect(page.locator(".card:visible")).to_have_count(1)
        await expect(cards(page, 2)).to_contain_text("gone.txt does not exist")  # what failed stays
        await page.reload()
        await expect(page.locator(".card:visible")).to_have_count(1)
        await line.focus()
        await page.keyboard.press("Enter")
        await expect(line).to_have_attribute("aria-expanded", "true")
        await expect(page.locator(".card:visible")).to_have_count(6)
        await expect(page.get_by_text("Then I write.")).to_be_visible()
        await line.click()
        await expect(page.locator(".card:visible")).to_have_count(1)
        await cards(page).evaluate("(card) => card.dispatchEvent(new Event('reveal'))")
        await expect(cards(page)).to_be_visible()


async def test_what_is_read_stays_open_and_one_call_stays_a_card(tmp_path: Path) -> None:
    replies: tuple[Reply, ...] = (
        (bash("echo one"),),
        (bash(f"echo two; {held()}; true"),),
        "Both.",
        (bash("echo three"),),
        "Last.",
    )
    async with page_of_turn(tmp_path, *replies) as (_, _, page):
        await expect(cards(page, 1).locator(".tail")).to_contain_text("two")
        await cards(page).locator(".card-fold").focus()
        let_go(tmp_path)
        await expect(page.locator(".steps-line")).to_have_attribute("aria-expanded", "true")
        await expect(cards(page)).to_be_visible()
        await say(page, "Another.")
        await expect(page.get_by_text("Last.")).to_be_visible()
        await expect(cards(page, 2)).to_be_visible()
        await expect(page.locator(".steps-line")).to_have_count(1)


async def test_a_thought_with_the_focus_stays_when_the_run_ends(tmp_path: Path) -> None:
    replies: tuple[Reply, ...] = (
        (bash("echo one"),),
        (Thought("And now?"), bash("echo two")),
        (bash(f"echo begun; {held()}; true"),),
        "It is done.",
    )
    async with page_of_turn(tmp_path, *replies) as (_, _, page):
        await expect(cards(page, 2).locator(".tail")).to_contain_text("begun")
        thought = page.locator(".reasoning summary")
        await thought.focus()
        let_go(tmp_path)
        await expect(page.get_by_text("It is done.")).to_be_visible()
        await expect(thought).to_be_focused()


HEADINGS = "### One\n\n### Two\n\n### Three\n\n"


async def test_the_outline_leads_to_places_among_folded_steps(tmp_path: Path) -> None:
    script: list[Reply] = [(HEADINGS, bash("echo one")), (HEADINGS, bash("echo two")), *["Done."] * LONG]
    async with (
        asyncio.timeout(STORY_S),
        serving(tmp_path, Scripted(script, call_form=CallForm.NATIVE), approval_admin="sandboxed") as served,
        browsing() as browser,
    ):
        session = await begun(served, LONG)
        page = await browser.page()
        await page.goto(f"{home(served)}/#{session}")
        await page.get_by_role("button", name="Outline").click()
        line, place = page.locator(".steps-line"), page.locator(".answer").get_by_text("Three").nth(1)
        await expect(line).to_have_count(1)
        await expect(place).to_be_hidden()
        await page.locator(".outline").get_by_role("button", name="Three").nth(1).click()
        await expect(place).to_be_focused()
        await expect(line).to_have_attribute("aria-expanded", "true")


async def test_a_phone_keeps_the_conversation_beside_a_call_that_waits(tmp_path: Path) -> None:
    command = "touch a_file_that_was_not_there; " * 12
    script = Scripted([(bash(command),), (bash("touch elsewhere"),)], call_form=CallForm.NATIVE)
    async with (
        asyncio.timeout(STORY_S),
        serving(tmp_path, script, approval_admin="ask") as served,
        browsing() as browser,
    ):
        page = await browser.page(viewport=PHONE, has_touch=True, is_mobile=True)
        await page.goto(home(served))
        await say(page, "Go.")
        await expect(page.locator(".approval")).to_be_visible()
        card = cards(page)
        await expect(card.get_by_role("button", name="Answer")).to_be_visible()
        await expect(card.locator(".command")).to_be_hidden()  # the tray has it
        other = asyncio.create_task(served.chat("Elsewhere."))
        lines = page.locator(".approval-others li")
        await expect(lines).to_have_text(["Another conversation is waiting for you" + "Show"])
        heights = "[...document.querySelectorAll('#conversation, .approval-foot')].map((one) => one.clientHeight)"
        conversation, foot = await page.evaluate(heights)
        assert conversation >= 0.4 * PHONE["height"]
        assert foot > 0
        await expect(page.get_by_role("button", name="Deny")).to_be_in_viewport(ratio=1)
        await page.get_by_role("button", name="Deny").click()
        await page.locator(".deny-form .danger").click()
        await expect(card.locator(".card-state")).to_have_text("not run: denied by you")
        await expect(card).not_to_contain_text("was not run")
        other.cancel()


DIFF = "--- a/feed.py\n+++ b/feed.py\n@@ -1,2 +1,2 @@\n def feed(text):\n-    return 1\n+    return 'two'\n"
LOOKS = f"| part | bound |\n| --- | --- |\n| words $x$ | $z^2$ |\n\n```diff\n{DIFF}```\n\nThe end."
BASELINES = """() => [...document.querySelectorAll("td")].flatMap((cell) => {
  const mark = document.createElement("span");
  mark.style.cssText = "display: inline-block; width: 1px";
  cell.prepend(mark);
  const there = [mark, cell.querySelector("mi")].map((one) => Math.round(one.getBoundingClientRect().bottom));
  mark.remove();
  return there;
})"""


async def test_lines_of_diffs_are_coloured_whole_and_formulas_stand_on_the_line(tmp_path: Path) -> None:
    async with page_of_turn(tmp_path, (write("feed.py", "def feed():\n    return 1\n"),), LOOKS) as (_, _, page):
        await expect(page.get_by_text("The end.")).to_be_visible()
        added = page.locator(".markdown .c-added")
        await expect(added.locator(".c-text")).to_have_text("'two'")
        await expect(page.locator(".markdown .c-removed .c-word")).to_have_text("return")
        row, box = [await one.bounding_box() for one in (added, page.locator(".markdown pre").last)]
        assert row and box
        assert row["width"] > 0.95 * box["width"]
        assert await page.locator(".markdown code[data-language=diff]").inner_text() == DIFF
        await cards(page).locator(".card-fold").click()
        await expect(cards(page).locator(".diff .c-word").first).to_have_text("def")
        assert len(set(await page.evaluate(BASELINES))) == 1
        await expect(turns(page)).to_have_count(1)
