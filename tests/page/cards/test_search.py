"""Searching the output on a card: before it has come, while it comes, and where it cannot be had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Route

from app.models.scripted import Scripted
from tests.support.models.pictures import CAT
from tests.support.models.replies import native_bash
from tests.support.page.browser import Locator, Page, browsing, expect, held_back, home
from tests.support.page.stories import IN_VIEW, cards, page_of_turn
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

OUTPUT = "**/output?after=0"
SEARCHED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


async def numbers(page: Page) -> Locator:
    """The card of a command that has printed 3,000 lines."""
    card = cards(page)
    await expect(card).to_have_attribute("data-state", "done")
    await expect(card.locator(".tail-count")).to_contain_text("3,000 lines · the model saw 1,")
    return card


async def search(page: Page, card: Locator, words: str) -> None:
    """Type this into the search, and let the page search."""
    await card.get_by_role("searchbox").fill(words)
    await page.evaluate(SEARCHED)


@pytest.mark.parametrize("path", [OUTPUT, "**/whole_lines.js"])
async def test_a_search_typed_before_the_lines_are_there_finds_them(tmp_path: Path, path: str) -> None:
    async with page_of_turn(tmp_path, [native_bash("seq 1 3000")], "Done.") as (_, _, page):
        card = await numbers(page)
        async with held_back(page, path):
            await card.get_by_role("button", name="Search").click()
            await search(page, card, "299")
            await expect(card.get_by_role("status")).to_have_text("")
        await expect(card.get_by_role("status")).to_have_text("1 of 13")
        assert await card.locator(".tail").evaluate(IN_VIEW) == '"299"'
        await search(page, card, "nowhere")
        await expect(card.get_by_role("status")).to_have_text("No match")


async def test_a_search_goes_on_where_lines_become_a_screen_and_lines_again(tmp_path: Path) -> None:
    async with page_of_turn(tmp_path, [native_bash("seq 1 3000")], "Done.") as (_, _, page):
        card = await numbers(page)
        found, selected = card.get_by_role("status"), card.locator(".xterm-selection div")
        async with held_back(page, OUTPUT):
            await card.get_by_role("button", name="Search").click()
            await card.get_by_role("button", name="As a screen").click()
            await card.get_by_role("button", name="As lines").click()
            await card.get_by_role("button", name="As a screen").click()
            await expect(card.locator(".xterm-rows")).to_have_count(1)
            await search(page, card, "2998")
            await expect(found).to_have_text("")
            await expect(selected).to_have_count(0)
        await expect(selected).not_to_have_count(0)
        await search(page, card, "nowhere")
        await expect(found).to_have_text("No match")
        await search(page, card, "299")
        await expect(found).to_have_text("")
        await card.get_by_role("button", name="As lines").click()
        await expect(found).to_have_text("1 of 13")


async def test_a_search_in_lines_that_cannot_be_loaded_says_so(tmp_path: Path) -> None:
    async with page_of_turn(tmp_path, [native_bash("seq 1 3000")], "Done.") as (_, browser, page):
        card = await numbers(page)
        refusal = {"error": {"type": "server_error", "code": "unavailable", "message": "The store is busy."}}
        browser.expected.append("status of 503")
        await page.route(OUTPUT, lambda route: route.fulfill(status=503, json=refusal))
        await card.get_by_role("button", name="Search").click()
        await search(page, card, "3000")
        await expect(card.get_by_role("alert")).to_have_text("The store is busy.")
        await expect(card.get_by_role("status")).to_have_text("1 of 1")  # in what the model was given
        await search(page, card, "nowhere")
        await expect(card.get_by_role("status")).to_have_text("No match")


# A command of which the test decides what it has printed.
COMMAND = """
async () => {
  const { Tail } = await import("/page/js/terminal/output_tail.js");
  let text = "", done = false;
  const whole = async (after) => {
    const piece = text.slice(after);
    const { length } = text, lines = text.trimEnd().split("\\n").length;
    return { text: piece, from: after, next: length, characters: length, lines, done };
  };
  const tail = new Tail({ label: "Output of all", whole });
  tail.element.classList.add("card");
  document.querySelector("main").replaceChildren(tail.element);
  window.prints = (more, last = false) => {
    text += more;
    done = last;
    const lines = text.split("\\n");
    tail.show({ tail: lines.slice(-12), lines: lines.length, bytes: text.length });
    if (last) tail.end();
  };
}
"""
FILLER = "".join(f"line {at}\n" for at in range(100))


@asynccontextmanager
async def a_command(folder: Path, printed: str) -> AsyncGenerator[Page, None]:
    async with asyncio.timeout(100), serving(folder, Scripted([])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await page.evaluate(COMMAND)
        await prints(page, printed)
        yield page


async def prints(page: Page, text: str, *, last: bool = False) -> None:
    await page.evaluate("([text, last]) => window.prints(text, last)", [text, last])


async def test_a_search_goes_on_while_lines_come(tmp_path: Path) -> None:
    async with a_command(tmp_path, "".join(f"{at}\n" for at in range(20))) as page:
        card, found = cards(page), cards(page).get_by_role("status")
        await card.get_by_role("button", name="Search").click()
        await search(page, card, "ready")
        await expect(found).to_have_text("No match")
        await prints(page, "ready 1\n")
        await expect(found).to_have_text("1 of 1")
        await prints(page, f"{FILLER}not yet rea")
        await expect(card.locator(".tail")).to_contain_text("not yet rea")
        await prints(page, f"dy 2, ready 3\n{FILLER}ready 4\nThe end")
        await expect(found).to_have_text("1 of 4")
        assert await card.locator(".tail").evaluate(IN_VIEW) == '"ready"'
        await expect(card.get_by_role("button", name="Scroll to the end")).to_be_visible()
        await page.keyboard.press("Shift+Enter")
        await expect(found).to_have_text("4 of 4")
        await search(page, card, "the end")
        await prints(page, "", last=True)
        await expect(found).to_have_text("1 of 1")  # of a line that never got an end
        await expect(card.get_by_role("button", name="Scroll to the end")).to_be_hidden()
        await card.get_by_role("button", name="Show less").click()
        await expect(card.get_by_role("searchbox")).to_have_count(0)


async def test_quick_clicks_make_one_search(tmp_path: Path) -> None:
    async with a_command(tmp_path, FILLER) as page:
        card, look = cards(page), cards(page).get_by_role("button", name="Search", exact=True)
        async with held_back(page, "**/tail_search.js"):
            for _ in range(3):
                await look.click()
        await expect(card.get_by_role("searchbox")).to_have_count(1)
        await page.evaluate(SEARCHED)
        await expect(card.locator(".tail-search")).to_have_count(1)
        await search(page, card, "line 99")
        await expect(card.get_by_role("status")).to_have_text("1 of 1")
        for _ in range(3):
            await card.get_by_role("button", name="Show less").click()
            await card.get_by_role("button", name="Show all").click()
        await look.click()
        await search(page, card, "line 9")
        await expect(card.get_by_role("status")).to_have_text("1 of 11")


DROPPED = """
async () => {
  const { LineWindow } = await import(document.querySelector('script[src*="main.js"]').src
    .replace("main.js", "terminal/line_window.js"));
  const box = document.createElement("div");
  document.querySelector("main").replaceChildren(box);
  const lines = new LineWindow(box);
  const add = (blocks, words) => {
    for (let at = 0; at < blocks; at++) lines.add(Array.from({ length: 500 }, () => [{ text: words }]));
  };
  const found = [];
  add(1, "ready");
  add(978, "line");
  add(21, "ready");
  found.push(await lines.find("ready", { fresh: true }));
  add(1, "line"); // as many as are kept are there: the first block goes
  found.push(await lines.find("ready", { keep: true }));
  add(999, "line");
  add(1, "ready"); // all the places that were found have gone
  found.push(await lines.find("ready", { keep: true }));
  return found;
}
"""


async def found_ready(page: Page) -> tuple[Locator, Locator]:
    """The only "ready" is found; return the card and its way to the end."""
    card = cards(page)
    await card.get_by_role("button", name="Search").click()
    await search(page, card, "ready")
    await expect(card.get_by_role("status")).to_have_text("1 of 1")
    await page.evaluate(SEARCHED)  # the scroll event of the place found comes with the next frame
    return card, card.get_by_role("button", name="Scroll to the end")


async def test_a_reader_stays_where_the_place_found_is_dropped(tmp_path: Path) -> None:
    async with a_command(tmp_path, FILLER) as page:
        first, then, last = await page.evaluate(DROPPED)
        assert first == {"at": 1, "of": 10_000, "moved": True} and then == {"at": 1, "of": 10_000, "moved": False}
        assert last == {"at": 1, "of": 500, "moved": False}


async def test_who_goes_to_the_end_after_a_search_is_followed_again(tmp_path: Path) -> None:
    async with a_command(tmp_path, f"{FILLER}ready 1\n") as page:
        card, end = await found_ready(page)
        await page.keyboard.press("Escape")
        await prints(page, FILLER)
        await expect(end).to_be_visible()
        await card.locator(".tail").evaluate("(box) => (box.scrollTop = box.scrollHeight)")
        await expect(end).to_be_hidden()


async def test_who_scrolls_at_the_end_after_a_search_was_closed_follows_it(tmp_path: Path) -> None:
    async with a_command(tmp_path, f"{FILLER}ready 1\n") as page:
        card, end = await found_ready(page)
        await expect(end).to_be_visible()
        await page.keyboard.press("Escape")
        await card.locator(".tail").evaluate("(box) => box.scrollBy(0, -5)")
        await expect(end).to_be_hidden()
        await prints(page, FILLER)
        await expect(card.locator(".tail-count")).to_have_text("201 lines")
        assert await card.locator(".tail").evaluate("(box) => box.scrollHeight - box.scrollTop - box.clientHeight") < 1


PICTURE = """
async () => {
  const { fileElement } = await import(document.querySelector('script[src*="main.js"]').src
    .replace("main.js", "cards/message_files.js"));
  const file = (name) => ({ sha256: "a".repeat(64), media_type: "image/png", name, size: 1 });
  const pictures = ["cat.png", "law.png"].map((name) => fileElement(file(name), "ses_1"));
  document.querySelector("main").replaceChildren(...pictures);
}
"""


@pytest.mark.parametrize(("stays", "opened"), [(True, 1), (False, 0)])
async def test_a_picture_that_is_clicked_before_it_has_come_opens_once(
    tmp_path: Path, stays: bool, opened: int
) -> None:
    async with a_command(tmp_path, FILLER) as page:
        come = asyncio.Event()

        async def late(route: Route) -> None:
            await come.wait()
            await route.fulfill(status=200, content_type="image/png", body=CAT)

        await page.route("**/sessions/ses_1/files/**", late)
        await page.evaluate(PICTURE)
        pictures = page.get_by_role("button", name="Picture: ")
        for at in (0, 0, 0, 1):
            await pictures.nth(at).click()
        drawn = await pictures.get_by_role("img").element_handles()
        assert len(drawn) == 2
        if not stays:
            await page.evaluate("() => document.querySelector('main').replaceChildren()")
        come.set()
        await page.wait_for_function("(all) => all.every((one) => one.naturalWidth === 80)", arg=drawn)
        await page.evaluate(SEARCHED)
        await expect(page.locator("dialog[open]")).to_have_count(opened)
