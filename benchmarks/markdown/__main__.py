"""Markdown as it streams, in a real Chromium: characters taken back, and how the cost of a text grows with it.

The corpus are the snippets of fixtures/page/snippets.json, in deltas of four characters. A delta takes back what stood
on the page before it, less the beginning and the end that stay. `python -m benchmarks.markdown --library FOLDER`, where
FOLDER has run `npm install markdown-it markdown-it-footnote markdown-it-task-lists`, draws the same with markdown-it,
all of the text anew for each delta, as a page has to that uses it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

from app.models.scripted import Scripted
from tests.support.page.browser import Page, browsing, home
from tests.support.page.chromium import launched
from tests.support.page.commonmark import STREAMS
from tests.support.server.serving import serving

ROOT = Path(__file__).parents[2]
SNIPPETS = json.loads((ROOT / "fixtures/page/snippets.json").read_text())["snippets"]
SIZE = 4  # characters of a delta
ANSWER = "\n\n".join(row["text"] for row in SNIPPETS if "never ends" not in row["name"])
LIBRARY = (
    "markdown-it/dist/browser/markdown-it.umd.min.js",
    "markdown-it-footnote/dist/markdown-it-footnote.min.js",
    "markdown-it-task-lists/dist/markdown-it-task-lists.min.js",
)

# Writes texts in so many deltas; returns the milliseconds of each.
WRITES = """async ([texts, deltas]) => {
  const { Markdown } = await import("/page/js/markdown/markdown.js");
  return texts.map((text) => {
    const began = performance.now(), markdown = new Markdown(), size = Math.ceil(text.length / deltas);
    for (let at = 0; at < text.length; at += size) {
      markdown.write(text.slice(at, at + size));
      if (at % (size * 20) === 0) markdown.draw();
    }
    markdown.end();
    return performance.now() - began;
  });
}"""

# Text made to cost time: what is repeated begins everywhere and never ends.
HOSTILE = {
    "stars": "*",
    "stars and letters": "*a **b ",
    "underscores": "_a__",
    "brackets": "[",
    "brackets closed": "[a]",
    "brackets nested": "[a[",
    "links begun": "[a](",
    "links with titles begun": '[a](b "',
    "pictures begun": "![a",
    "backticks": "`` ` ",
    "growing backticks": None,
    "definitions": "[a]: b\n",
    "definitions begun": "[a]:\n",
    "names": "[a][b] ",
    "footnotes": "[^1] ",
    "notes": "[^1]: a\n",
    "quotes": "> ",
    "lists": "- ",
    "lists of numbers": "1. a\n",
    "folds": "<details>\n",
    "tags": "<b>a",
    "tags begun": "<a b='",
    "comments begun": "<!-- ",
    "angles": "<a:",
    "characters begun": "&#",
    "dollars": "$a ",
    "formulas begun": "\\(a ",
    "backslashes": "\\",
    "rows": "| a | b |\n|---|---|\n",
    "blanks": "a" + " " * 500,
}
LENGTH = 40_000


def hostile(repeated: str | None, length: int) -> str:
    if repeated is None:
        return " ".join("`" * count for count in range(1, int((2 * length) ** 0.5)))
    return repeated * (length // len(repeated))


async def back(page: Page, *, own: bool, name: str) -> None:
    """One row: each snippet as an answer of its own, and all of them as one."""
    single = await page.evaluate(STREAMS, [[row["text"] for row in SNIPPETS], SIZE, own])
    whole = await page.evaluate(STREAMS, [[ANSWER], SIZE, own])
    print(f"{name:15}{sum(one[0] for one in single):15,}{whole[0][0]:12,}{whole[0][1]:10,.0f}")


async def growth(page: Page) -> None:
    """Hostile texts of one length and of the double."""
    print(f"{'hostile':25}{'ms':>9}{'doubled':>9}{'ratio':>7}")
    for name, repeated in HOSTILE.items():
        texts = [hostile(repeated, length) for length in (LENGTH, 2 * LENGTH)]
        await page.evaluate(WRITES, [texts[:1], 200])
        rounds = [await page.evaluate(WRITES, [texts, 200]) for _ in range(3)]
        once, twice = (min(times) for times in zip(*rounds, strict=True))
        print(f"{name:25}{once:9,.0f}{twice:9,.0f}{twice / once:7.1f}")
    text = (ANSWER * (60_000 // len(ANSWER) + 1))[:60_000]
    for deltas in (2_500, 5_000, 10_000):
        length = deltas * 6
        took = (await page.evaluate(WRITES, [[text[:length]], deltas]))[0]
        print(f"{f'{deltas:,} deltas':25}{took:9,.0f} ms")


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.markdown", description=__doc__)
    parser.add_argument("--library", type=Path, help="a folder with node_modules of markdown-it")
    library = parser.parse_args().library
    async with launched():
        with tempfile.TemporaryDirectory() as folder:
            async with serving(Path(folder), Scripted([])) as served, browsing() as browser:
                page = await browser.page(bypass_csp=True)
                await page.goto(home(served))
                print(f"{len(ANSWER):,} characters\n{'taken back':15}{'each alone':>15}{'as one':>12}{'ms':>10}")
                await back(page, own=True, name="the page")
                if library:
                    browser.expected.append("Failed to load resource")  # it loads pictures
                    for path in LIBRARY:
                        await page.add_script_tag(path=library / "node_modules" / path)
                    await back(page, own=False, name="markdown-it")
                await growth(page)


if __name__ == "__main__":
    asyncio.run(main())
