"""Thoughts in hindsight on the page: an answer that turns out to be reasoning moves into the folded block."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.provider import ProviderFailed, TextChunk
from app.models.scripted import Raise, Reply, Scripted
from parsing import Thought
from tests.support.page.browser import browsing, expect, home, say, shot
from tests.support.page.stories import pauses, shell, turns
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

THOUGHT = "The person asks for **the time**.\n\n- one way\n- another 😀\n\n```py\nnow()\n"
REST = "```\n\nI know it."
DRAFT = '<tool_call>\n{"name": "bash", "arguments": {"command": "date"}}\n</tool_call>'


async def test_an_answer_that_was_thought_moves_into_the_thoughts(tmp_path: Path) -> None:
    shown, closed = pauses(2)
    replies: list[Reply] = [
        (*map(TextChunk, THOUGHT), shown, *map(TextChunk, REST), "</think>\n\n", closed, "It is **noon**.")
    ]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "What time is it?")
        turn, answer = turns(page), page.locator(".answer")
        await expect(answer.get_by_text("another 😀")).to_be_visible()
        await expect(answer.locator("figure.code")).to_be_visible()
        await page.reload()  # in the middle of what will have been a thought
        await expect(answer.get_by_text("another 😀")).to_be_visible()
        await answer.get_by_role("button").first.focus()
        shown.event.set()
        thought = turn.locator("details.reasoning")
        await expect(thought).to_have_count(1)
        await expect(thought.locator("summary")).to_be_focused()
        await expect(answer).to_have_count(0)
        await expect(turn.get_by_text("the time", exact=True)).to_be_hidden()
        closed.event.set()
        await expect(answer.locator("strong")).to_have_text("noon")
        await expect(answer.get_by_text("It is noon.")).to_have_count(1)
        for _ in ("as it came", "as it is in the log"):
            await expect(thought.locator("summary")).to_have_text("Thoughts")
            await thought.locator("summary").click()
            await expect(thought.locator("li")).to_have_text(["one way", "another 😀"])
            await expect(thought.locator("code").first).to_contain_text("now()")
            await expect(thought.get_by_text("I know it.")).to_be_visible()
            await expect(turn.get_by_text("the time", exact=True)).to_have_count(1)
            await expect(answer).to_have_count(1)
            await shot(page, "thought-in-hindsight")
            await page.reload()


async def test_a_thought_that_broke_off_moves_whole(tmp_path: Path) -> None:
    lost = Raise(ProviderFailed("model_cut", "The connection was lost.", retryable=True))
    replies: list[Reply] = [("The person asks ", lost), ("for the time.", "</think>", "Noon.")]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "What time is it?")
        turn = turns(page)
        for _ in ("as it came", "as it is in the log"):
            await expect(page.locator(".answer")).to_have_text("Noon.")
            await expect(turn.locator("details.reasoning")).to_have_count(1)
            await turn.locator("details.reasoning summary").click()
            await expect(turn.get_by_text("The person asks for the time.")).to_be_visible()
            await page.reload()


TAKEN = """async (pieces) => {
  const { Answer } = await import("/page/js/chat/message.js");
  const answer = new Answer();
  for (const piece of pieces) answer.add(piece);
  document.body.append(answer.element);
  const left = [];
  for (const count of [0, 2, 3, 99]) left.push([answer.takeBack(count), answer.text]);
  answer.add("New.");
  answer.close();
  while (!answer.element.textContent.includes("New.")) await new Promise(requestAnimationFrame);
  return [left, answer.element.textContent];
}"""


async def test_characters_are_counted_as_the_server_counts_them(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hello."])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        left, text = await page.evaluate(TAKEN, ["One ", "😀😀", "", "x"])
        assert (left, text) == ([[0, "One 😀😀x"], [2, "One 😀"], [3, "On"], [2, ""]], "New.")


async def test_a_draft_of_a_call_stays_as_a_card_behind_the_thought(tmp_path: Path) -> None:
    replies: list[Reply] = [
        ("First the clock.\n\n", DRAFT, "\n\n", "Or not.", "</think>", "I ask it.\n\n", *shell("echo noon")),
        "Noon.",
    ]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "What time is it?")
        turn, cards = turns(page), page.locator(".card")
        await expect(turn.get_by_text("Noon.")).to_be_visible()
        for _ in ("as it came", "as it is in the log"):
            await expect(turn.locator("details.reasoning")).to_have_count(1)
            await expect(cards).to_have_count(2)
            await expect(cards.nth(0)).to_contain_text("stood in the model's thoughts")
            await expect(cards.nth(1)).to_have_attribute("data-state", "done")
            await expect(page.locator(".answer")).to_have_count(2)
            await expect(page.locator(".answer").nth(0)).to_contain_text("I ask it.")
            await expect(cards.nth(1)).to_contain_text("echo noon")
            parts = await turn.locator(".run-body > *").evaluate_all("(all) => all.map((one) => one.classList[0])")
            assert parts[:5] == ["reasoning", "card", "answer", "card", "answer"]
            await turn.locator("details.reasoning summary").click()
            await expect(turn.locator(".reasoning-text")).to_contain_text("First the clock.")
            await expect(turn.locator(".reasoning-text")).to_contain_text("Or not.")
            await shot(page, "draft-in-a-thought")
            await page.reload()


async def test_a_thought_can_be_read_while_it_is_written_and_folds_behind_it(tmp_path: Path) -> None:
    (first, last), (again, end) = pauses(2), pauses(2)
    lines = "".join(f"Step {number}.\n\n" for number in range(1, 31))
    replies: list[Reply] = [
        (Thought(lines), first, Thought("The last."), last, "Noon."),
        (Thought("Once more."), again, Thought("Still."), end, "One."),
    ]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "What time is it?")
        thought = page.locator("details.reasoning")
        await expect(thought.get_by_text("Step 30.")).to_be_in_viewport()
        await shot(page, "thought-live")
        first.event.set()
        await expect(thought.get_by_text("The last.")).to_be_in_viewport()  # it follows the end
        last.event.set()
        await expect(page.locator(".answer")).to_have_text("Noon.")
        await expect(thought.get_by_text("The last.")).to_be_hidden()
        await say(page, "And now?")
        await expect(thought.nth(1).get_by_text("Once more.")).to_be_visible()
        await thought.nth(1).locator("summary").click()  # folded while it is written: so are those to come
        await expect(thought.nth(1).get_by_text("Once more.")).to_be_hidden()
        assert await page.evaluate("localStorage.getItem('dragoman.reasoning')") == "folded"
        again.event.set()
        end.event.set()
        await expect(page.locator(".answer").nth(1)).to_have_text("One.")
