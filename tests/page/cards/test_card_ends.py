"""Cards by themselves: how what was under way is told once its run has ended, and what is very long."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.models.replies import native_bash
from tests.support.page.browser import browsing, expect, home
from tests.support.page.stories import cards, held, page_of_turn, shell
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

STATES = """
async (ended) => {
  const { ToolCard } = await import("/page/js/cards/tool_card.js");
  const view = { asked: { run: "run_x", session: "ses_x" }, restoring: true, ended: null, page: { store: new Map() } };
  const made = ["a", "b", "c", "d", "e", "f"].map((call) => new ToolCard(call, "mcp__maps__find<b>", view));
  const [begun, waiting, over, question, , handed] = made;
  handed.hand({ name: "get_weather", arguments: { city: "Oslo" } });
  begun.start({ name: "mcp__maps__find<b>", arguments: { query: "\\u202eevil", near: { lat: 1 } } });
  begun.progress({ elapsed_s: 75, tail: [], lines: 0, bytes: 0 });
  waiting.ask({ name: "mcp__maps__find<b>", arguments: {}, reason: "It asks." });
  question.ask({ name: "mcp__maps__elicitation", arguments: { message: "Which?" }, reason: "It asks." });
  question.resolve({ decision: "approved", by: "ann" });
  over.start({ name: "mcp__maps__find<b>", arguments: {} });
  over.finish({ ok: true, text: '{"found": []}', duration_s: 0.012 });
  document.querySelector("main").replaceChildren(...made.map((card) => card.element));
  view.ended = ended;
  for (const card of made) card.runEnded();
  over.head.fold.click();
  return made.map(({ element }) => element.getAttribute("aria-label"));
}
"""


LARGE = """
async () => {
  const { CardArguments } = await import("/page/js/cards/card_arguments.js");
  const { changeDiff } = await import("/page/js/text/diff.js");
  const many = new CardArguments("telepathy");
  many.settle(Object.fromEntries(Array.from({ length: 1000 }, (_, at) => [`name ${at}`, at])));
  const long = new CardArguments("bash");
  long.settle({ command: "x".repeat(1_000_000) });
  const command = long.element.querySelector(".command");
  const folded = command.textContent.length;
  long.element.querySelector("button").click();
  const diff = changeDiff("a\\n", "y".repeat(1_000_000)), line = diff.querySelectorAll(".diff-text")[1];
  const cut = line.textContent;
  line.querySelector("button").click();
  const lines = changeDiff("", "z\\n".repeat(12_000)), rows = () => lines.querySelectorAll(".diff-row").length;
  const grown = [rows()];
  for (let more = 0; more < 3; more++) grown.push((lines.querySelector(".diff-more")?.click(), rows()));
  return [
    many.element.querySelectorAll("dt").length,
    many.element.querySelector(".card-note").textContent,
    folded,
    command.textContent.endsWith("[800,000 more characters are not shown here]"),
    cut.length < 5000 && cut.endsWith("Show 996,000 more characters"),
    line.textContent.length,
    diff.textContent.includes("newline after the last line is removed"),
    grown,
  ];
}
"""


async def test_what_was_under_way_when_a_run_ended_is_told(tmp_path: Path) -> None:
    interrupted = {"type": "run.failed", "code": "interrupted"}
    cancelled = {"type": "run.finished", "reason": "cancelled"}
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        name = "maps · find<b>"
        answered = "maps · elicitation: Which?, answered by ann"
        handed = "get_weather: Oslo, sent to your app"
        last = [f"{name}, not run", f"{name}, done", answered, f"{name}, not run", handed]
        found = await page.evaluate(STATES, interrupted)
        assert [found[0].endswith("interrupted, result unknown"), found[1:]] == [True, last]
        await expect(cards(page).locator(".card-time")).to_have_text("over 1:15")
        await expect(cards(page).locator(".card-rows")).to_have_text('near{\n  "lat": 1\n}')
        await expect(cards(page, 2).locator(".card-time")).to_have_text("12 ms")
        await expect(cards(page, 2).locator(".card-untrusted")).to_have_text(f"Untrusted content: {name}")
        await expect(cards(page, 2).locator("figure.code")).to_contain_text('"found": []')
        found = await page.evaluate(LARGE)
        assert found[:5] == [100, "900 more are not shown here.", 4_000, True, True]
        assert found[5:] == [1_000_000, True, [24, 5_024, 10_024, 12_000]], "all of it can be looked at"
        found = await page.evaluate(STATES, cancelled)
        assert [found[0].endswith("stopped"), found[1:]] == [True, last]


async def test_what_stopped_a_command_is_no_line_of_its_output(tmp_path: Path) -> None:
    async with page_of_turn(tmp_path, shell(f"seq 3; {held()}")) as (_, _, page):
        card = cards(page)
        await expect(card.locator(".tail")).to_contain_text("3")
        await page.locator("#composer").get_by_role("button", name="Stop").click()
        for _ in range(2):
            await expect(card.get_by_text("Stopped. It may have made changes.")).to_be_visible()
            await expect(card.locator(".tail")).to_have_text("1\n2\n3")
            await expect(card.locator(".tail-bar")).to_contain_text("3 lines")
            await page.reload()


async def test_many_calls_that_are_written_at_once_are_laid_out_once(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        counters = await page.context.new_cdp_session(page)
        await counters.send("Performance.enable")

        async def layouts() -> float:
            told = await counters.send("Performance.getMetrics")
            return float(next(one["value"] for one in told["metrics"] if one["name"] == "LayoutCount"))

        before = await layouts()
        followed = await page.evaluate(
            """async () => {
              const main = document.querySelector('script[src*="main.js"]').src;
              const address = main.replace("main.js", "cards/streaming_text.js");
              const { StreamingText } = await import(address);
              const all = Array.from({ length: 200 }, () => new StreamingText("Text"));
              document.querySelector("main").append(...all.map((one) => one.element));
              for (const one of all) one.append("a line\\n".repeat(100));
              await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
              return all.every(({ element }) => element.scrollTop > 0);
            }"""
        )
        assert followed
        assert await layouts() - before < 50


async def test_all_lines_of_a_command_are_counted_whatever_is_stored(tmp_path: Path) -> None:
    """At the end, with all of it shown, in the middle where some is not stored, and opened again."""
    async with page_of_turn(tmp_path, [native_bash("seq 1 100000")], "Done.") as (_, _, page):
        card = cards(page)
        await expect(card).to_have_attribute("data-state", "done")
        count = card.locator(".tail-count")
        await expect(count).to_contain_text("100,000 lines · the model saw 1,")
        await card.get_by_role("button", name="Show all").click()
        await expect(count).to_contain_text("100,000 lines · the model saw 1,")
        await page.reload()
        await expect(card.locator(".card-brief")).to_contain_text("100,000 lines · the model saw 1,")
        await card.locator(".card-fold").click()
        await card.get_by_role("button", name="Show all").click()
        await card.get_by_role("button", name="Search").click()
        await card.get_by_role("searchbox").fill("lines, ")
        await expect(card.locator(".tail")).to_contain_text(" characters left out ...]")
        await expect(card.locator(".tail-bar .tail-count")).to_contain_text("100,000 lines · the model saw 1,")
