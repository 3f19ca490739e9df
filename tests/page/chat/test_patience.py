"""Text that somebody has made to be read for ever: the page is through with it at once.

What counts is the time of the processor that the page itself takes, whatever else the machine does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.page.browser import browsing, cpu_ms, home
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

LONG_MS = 2_000  # each took from four seconds to hours, and takes some milliseconds

# What reads, by a name, and text at its weak spot: what begins everywhere and never ends.
READ = """async (name) => {
  const load = (name) => import(`/page/js/${name}.js`);
  const { PartialTags } = await load("cards/partial_tags"), { linesOf } = await load("terminal/ansi");
  const { inline } = await load("markdown/inline"), { Markdown } = await load("markdown/markdown");
  const sink = { open() {}, text() {}, restart() {}, failed() {} };
  const written = (text) => {
    const markdown = new Markdown();
    for (let at = 0; at < text.length; at += 2_000) markdown.write(text.slice(at, at + 2_000));
    markdown.end();
  };
  const rows = {
    tag: [(text) => new PartialTags(sink).feed(text), "<arg_key>" + " ".repeat(8_000)],
    erased: [linesOf, "x".repeat(3_990) + "\\x1b[2KX\\b".repeat(33_000)],
    attributes: [(text) => inline(text), "<a b='".repeat(10_000)],
    titles: [(text) => inline(text), '[a](b "'.repeat(8_000)],
    marks: [written, "[^1] ".repeat(8_000)],
    items: [written, "-\\n".repeat(5_000)],
    link: [(text) => inline(text), "[a](" + " ".repeat(60_000) + "x"],
  };
  if (!name) return Object.keys(rows);
  const [read, text] = rows[name];
  read(text);
}"""
FIELDS = """async () => {
  const { CardArguments } = await import("/page/js/cards/card_arguments.js");
  const card = new CardArguments("x");
  card.write("{" + Array.from({ length: 9_000 }, (_, number) => `"a${number % 4_500}":1,`).join(""));
  return card.element.childElementCount;
}"""


async def test_text_that_is_made_to_take_long_does_not(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        times = {name: (await cpu_ms(page, READ, name))[1] for name in await page.evaluate(READ)}
        assert len(times) == 7 and {name: took for name, took in times.items() if took > LONG_MS} == {}
        assert await page.evaluate(FIELDS) == 100
