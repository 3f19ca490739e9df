"""Big things cost no more work than what is new in them: counted in elements, not in time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.page.browser import browsing, expect, home, say
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

TURNS = 400
# Copies of a turn in front of it, as a long conversation has them.
COPIES = """(count) => {
  const list = document.querySelector(".runs");
  for (let at = 0; at < count; at++) list.prepend(list.lastElementChild.cloneNode(true));
}"""
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
# Draws a paragraph as it comes, 64 characters at a time; returns how many nodes came in all and at most at once.
PARAGRAPH = """async (text) => {
  const { Markdown } = await import("/page/js/markdown/markdown.js");
  const view = new Markdown();
  const seen = new MutationObserver(() => undefined);
  seen.observe(view.element, { childList: true, subtree: true });
  const nodes = [];
  for (let at = 0; at < text.length; at += 64) {
    view.write(text.slice(at, at + 64));
    view.draw();
    nodes.push(seen.takeRecords().reduce((sum, { addedNodes }) => sum + addedNodes.length, 0));
  }
  return [nodes.reduce((sum, one) => sum + one), Math.max(...nodes)];
}"""
WORDS = "plain words, **strong** ones, `code` and [a link](https://example.org) in one paragraph without an end "


def worked_on(trace: bytes) -> tuple[int, int]:
    """Return how many elements were styled at most at once, and how many were laid out."""
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    styled = [one["args"].get("elementCount", 0) for one in events if one["name"] == "UpdateLayoutTree" and one["args"]]
    began = [one["args"].get("beginData", {}) for one in events if one["name"] == "Layout"]
    return max(styled, default=0), max((one.get("dirtyObjects", 0) for one in began), default=0)


async def test_what_is_new_in_a_long_conversation_is_all_that_is_styled_and_laid_out(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["One."] * 3)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Begin.")
        await expect(page.locator(".run .turn-foot")).to_have_count(1)
        await page.evaluate(COPIES, TURNS)
        await page.evaluate("document.querySelector('#conversation').scrollTop = 1e9")
        await expect(page.locator(".run")).to_have_count(TURNS + 1)
        await page.evaluate(DRAWN)
        await page.evaluate("document.getElementById('composer-text').focus()")
        for name, work in (("typed", "some words"), ("sent", "\n")):
            await browser.browser.start_tracing(page=page, categories=["devtools.timeline"])
            await page.keyboard.type(work)
            await expect(page.locator(".run .turn-foot")).to_have_count(TURNS + 1 + (name == "sent"))
            styled, laid_out = worked_on(await browser.browser.stop_tracing())
            assert 0 < styled < TURNS and laid_out < TURNS, (name, styled, laid_out)


async def test_a_long_paragraph_costs_as_much_at_its_end_as_at_its_beginning(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        text = WORDS * (60_000 // len(WORDS))
        half, most_of_half = await page.evaluate(PARAGRAPH, text[: len(text) // 2])
        whole, most = await page.evaluate(PARAGRAPH, text)
        assert whole < 2.2 * half and most < 1.2 * most_of_half
