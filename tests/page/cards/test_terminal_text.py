"""What programs write for a terminal, as the page's modules read it: run in a browser, without a conversation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import DEMO, Scripted
from tests.support.page.browser import Page, browsing, expect, home
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

BOLD, DIM, ITALIC, UNDERLINE, INVERSE, STRIKE = 1, 2, 4, 8, 16, 32
TRUE = 0x1000000
Span = tuple[str, int | None, int | None, int] | str

# what a program writes -> its lines, each of spans: words, colour, background, look; a plain one is words alone
TERMINAL: list[tuple[str, list[list[Span]]]] = [
    ("plain\nwords", [["plain"], ["words"]]),
    ("a\r\nb\r\n", [["a"], ["b"]]),
    ("\x1b[31mred\x1b[0m not", [[("red", 1, None, 0), " not"]]),
    ("\x1b[1;4;92mx\x1b[24my\x1b[22;39mz", [[("x", 10, None, BOLD | UNDERLINE), ("y", 10, None, BOLD), "z"]]),
    ("\x1b[2;3;7;9mx", [[("x", None, None, DIM | ITALIC | INVERSE | STRIKE)]]),
    ("\x1b[27;38;5;208;48;5;17mx\x1b[49my", [[("x", 208, 17, 0), ("y", 208, None, 0)]]),
    ("\x1b[38;2;1;2;3mx", [[("x", TRUE | 0x010203, None, 0)]]),
    ("\x1b[38:2::255:0:16mx\x1b[m.", [[("x", TRUE | 0xFF0010, None, 0), "."]]),
    ("\x1b[38:5:9;4:3mx\x1b[4:0my", [[("x", 9, None, UNDERLINE), ("y", 9, None, 0)]]),
    ("\x1b[100;97mx", [[("x", 15, 8, 0)]]),
    ("\x1b[38;9;1mx", [[("x", None, None, STRIKE | BOLD)]]),
    ("\x1b[31mone\ntwo\x1b[m\nthree", [[("one", 1, None, 0)], [("two", 1, None, 0)], ["three"]]),
    ("  5%\r 50%\r100%", [["100%"]]),
    ("loading...\rdone", [["doneing..."]]),
    ("loading...\r\x1b[Kdone", [["done"]]),
    ("loading...\x1b[2K\rdone", [["done"]]),
    ("abcdef\x1b[3D\x1b[K!", [["abc!"]]),
    ("abcdef\x1b[3D\x1b[1Kx", [["   xef"]]),
    ("ab\b\bxy", [["xy"]]),
    ("a\b\b\b\bz", [["z"]]),
    ("\x1b[32mok\x1b[m\rno", [["no"]]),
    ("abc\x1b[5Gz", [["abc z"]]),
    ("a\x1b[2Cb", [["a  b"]]),
    ("a\tb", [["a\tb"]]),
    ("ab\rc\td", [["cb      d"]]),
    ("日本\bx", [["日 x"]]),
    ("日本\r..", [["..本"]]),
    ("日本\r.", [[". 本"]]),
    ("e\u0301a\bo", [["e\u0301o"]]),
    ("👍a\bo", [["👍o"]]),
    ("\x1b]0;a title\x07shown", [["shown"]]),
    ("\x1b]8;;https://example.org\x1b\\a link\x1b]8;;\x1b\\.", [["a link."]]),
    ("\x1b]0;never ended\nshown", [[""], ["shown"]]),
    ("\x1bPq#0\x1b\\a\x1b_b\x9cc\x1b^d\x18e", [["ace"]]),
    ("\x1b[?25lx\x1b[2J\x1b[H\x1b[10;20Hy\x1b[A\x1b[s\x1b(B\x1b=\x1bcz", [["xyz"]]),
    ("\x07a\x00b\x7fc\x9bd", [["abcd"]]),
    ("\x1b[>4;1mx\x1b[;mz\x1b[999999999999999999mq", [["xzq"]]),
    ("\x1b[31", [[]]),
    ("\ud83dx", [["\ud83dx"]]),
]
READ = """
async (rows) => {
  const { Terminal } = await import("/page/js/terminal/ansi.js");
  const told = ({ text, style: { fg, bg, flags } }) =>
    fg === null && bg === null && !flags ? text : [text, fg, bg, flags];
  const lines = (pieces) => {
    const terminal = new Terminal();
    for (const piece of pieces) terminal.feed(piece);
    const found = terminal.take();
    if (terminal.open.length || !found.length) found.push(terminal.open);
    return JSON.stringify(found.map((spans) => spans.map(told)));
  };
  return rows.map((row) => [lines([row]), lines(row.split(""))]);
}
"""
LONG = """
async () => {
  const { linesOf } = await import("/page/js/terminal/ansi.js");
  const lengths = (text) => linesOf(text).map((line) => line.reduce((sum, { text }) => sum + text.length, 0));
  return [lengths("x".repeat(9000)), lengths("\\x1b[99999999Cx"), lengths("日".repeat(3000) + "\\b\\b.")];
}
"""
COLOURS = """
async () => {
  const { contrast, coloursOf, TERMINALS } = await import("/page/js/terminal/ansi_colours.js");
  const { rgbOf } = await import("/page/js/terminal/ansi_style.js");
  const all = [null, ...Array(256).keys(), 0x1000000, 0x1ffffff, 0x1777777, 0x10000ff];
  let least = 99;
  for (const fg of all) {
    for (const bg of [null, 0, 1, 3, 7, 8, 11, 15, 16, 21, 46, 102, 226, 231, 244, 0x1757575]) {
      for (const flags of [0, 2, 16, 18]) {
        for (const terminal of Object.values(TERMINALS)) {
          const { foreground, background } = coloursOf(fg, bg, flags, terminal);
          least = Math.min(least, contrast(foreground, background ?? terminal));
        }
      }
    }
  }
  const token = getComputedStyle(document.documentElement).getPropertyValue("--terminal");
  const named = token.match(/#\\w{6}/g).map((colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
  return [least, rgbOf(208), rgbOf(244), named, Object.values(TERMINALS)];
}
"""


async def test_the_page_reads_output_as_a_terminal_would(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(DEMO)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        found = await page.evaluate(READ, [row for row, _ in TERMINAL])
        for (written, lines), answers in zip(TERMINAL, found, strict=True):
            for answer in answers:
                assert _lines(answer) == [_joined(line) for line in lines], written
        assert await page.evaluate(LONG) == [[4000, 4000, 1000], [501], [3001]]
        least, orange, grey, named, used = await page.evaluate(COLOURS)
        assert named == used, "the terminals of ansi_colours.js have the colours of tokens.css"
        assert least >= 4.5
        assert (orange, grey) == ([255, 135, 0], [128, 128, 128])


def _lines(answer: str) -> list[list[Any]]:
    return [_joined(line) for line in json.loads(answer)]


def _joined(line: list[Any]) -> list[Any]:
    """The line with neighbours that look alike as one, and nothing that is empty."""
    out: list[Any] = []
    for span in line:
        text, look = (span, (None, None, 0)) if isinstance(span, str) else (span[0], tuple(span[1:]))
        if out and out[-1][1] == look:
            out[-1] = (out[-1][0] + text, look)
        elif text:
            out.append((text, look))
    return out


# what a model writes -> the fields that can be read in it
PIECES: list[tuple[str, dict[str, str]]] = [
    (
        '{"path": "a/b.py", "content": "x = \\"1\\"\\n\\ty\\u00e9\\ud83d\\ude00"}',
        {"path": "a/b.py", "content": 'x = "1"\n\tyé😀'},
    ),
    ('{"n": 3, "on" : true,"s":"", "o": null}', {"n": "3", "on": "true", "s": "", "o": "null"}),
    ('{"deep": {"a": ["}", {"b": "\\"]"}]}, "l": [[]]}', {"deep": '{"a": ["}", {"b": "\\"]"}]}', "l": "[[]]"}),
    ('{"name": "bash", "arguments": {"command": "ls"}}', {"command": "ls"}),
    ('{"command": "cut off in \\', {"command": "cut off in "}),
    ("{ echo hi; }", {"failed": "yes"}),
    ("[1]", {"failed": "yes"}),
    ("{}", {}),
    (
        "\n<parameter=path>\nx.py\n</parameter>\n<parameter=content>\na < b\n</p>\n\n</parameter>\n",
        {"path": "x.py", "content": "a < b\n</p>\n"},
    ),
    ('<parameter name="command">ls -l</parameter>', {"command": "ls -l"}),
    (
        "<arg_key>path</arg_key>\n<arg_value>x</arg_value>\n<arg_key>content</arg_key>\n<arg_value>y\nz</arg_value>",
        {"path": "x", "content": "y\nz"},
    ),
]
PARTS = """
async (rows) => {
  const { PartialObject } = await import("/page/js/cards/partial_json.js");
  const { PartialTags } = await import("/page/js/cards/partial_tags.js");
  const fields = (pieces) => {
    let found = {};
    const sink = {
      open: (name) => (found[name] = ""),
      text: (name, piece) => (found[name] += piece),
      restart: () => (found = {}),
      failed: () => (found = { failed: "yes" }),
    };
    const reader = /^\\s*</.test(pieces.join("")) ? new PartialTags(sink) : new PartialObject(sink);
    for (const piece of pieces) reader.feed(piece);
    return found;
  };
  return rows.map((row) => [fields([row]), fields(row.split(""))]);
}
"""
DIFFS = """
async (rows) => {
  const { rowsOfChange, rowsOfUnified } = await import("/page/js/text/diff_rows.js");
  const signs = { added: "+", removed: "-", same: " ", hunk: "@", note: "#" };
  const told = (found) => found.map(({ kind, text }) => signs[kind] + text).join("|");
  const hunk = "@@ -7,3 +7,3 @@ def f\\n same\\n--- old\\n+++ new\\n\\n[... 5 more characters of diff ...]";
  const unified = `--- a\\n+++ a\\n${hunk}`;
  const numbers = rowsOfUnified(unified).map(({ old, now }) => `${old ?? ""}/${now ?? ""}`).join(" ");
  const large = Array.from({ length: 5000 }, (_, at) => `line ${at}`);
  const shuffled = large.map((line, at) => (at % 2 ? line : `other ${at}`));
  const many = rowsOfChange(large.join("\\n"), shuffled.join("\\n"));
  return [rows.map(([a, b]) => told(rowsOfChange(a, b))), told(rowsOfUnified(unified)), numbers, many.length];
}
"""
CHANGES = [
    ("a\nb\nc\n", "a\nx\nc\n", " a|-b|+x| c"),
    ("", "new\n", "+new"),
    ("gone\n", "", "-gone"),
    ("1\n2\n3\n4\n5\n6\n7\n8\n9", "1\n2\n3\n4\n5\n6\n7\nx\n9", " 5| 6| 7|-8|+x| 9"),
    ("a\nb\nc\nd", "a\nc\nx\nd\ny", " a|-b| c|+x| d|+y"),
]


async def test_arguments_and_diffs_are_read_as_they_come(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(DEMO)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        found = await page.evaluate(PARTS, [written for written, _ in PIECES])
        for (written, fields), answers in zip(PIECES, found, strict=True):
            assert answers == [fields, fields], written
        changes, unified, numbers, many = await page.evaluate(DIFFS, [[before, after] for before, after, _ in CHANGES])
        assert changes == [row for _, _, row in CHANGES]
        assert unified == "@Line 7 def f| same|--- old|+++ new|#[... 5 more characters of diff ...]"
        assert numbers == "/ 7/7 8/ /8 /"
        assert many <= 10_000
        await _many_lines(page)


TAIL = """
async () => {
  const { Tail } = await import("/page/js/terminal/output_tail.js");
  const line = (at) => `\\x1b[32mline\\x1b[0m ${at} of a build that says much\\n`;
  let all = "";
  for (let at = 1; at <= 100_000; at++) all += line(at);
  const served = { shown: 1_500_000, asked: 0 };
  const whole = async (after) => {
    served.asked++;
    const next = Math.min(after + 65_536, served.shown);
    const text = all.slice(after, next);
    return { text, from: after, next, characters: served.shown, lines: 0, done: served.shown === all.length };
  };
  const tail = new Tail({ label: "Output of all", whole });
  const page = document.querySelector("main");
  page.replaceChildren(tail.element);
  tail.show({ tail: ["line 1"], lines: 100_000, bytes: all.length });
  let batches = 0, frames = 0, going = true;
  new MutationObserver(() => batches++).observe(tail.box, { childList: true, subtree: true, characterData: true });
  const frame = () => (frames++, going && requestAnimationFrame(frame));
  requestAnimationFrame(frame);
  const has = (words) => tail.box.textContent.includes(words);
  window.tail = { served, all, has, counts: () => ({ batches, frames, nodes: tail.box.querySelectorAll("*").length }) };
}
"""


async def _many_lines(page: Page) -> None:
    """A hundred thousand coloured lines: few nodes, one change per frame, and the reader's place is kept."""
    await page.evaluate(TAIL)
    box, button = page.locator(".tail"), page.locator(".tail-button")
    await page.get_by_role("button", name="Show all").click()
    await _shows(page, "line 25000 of")
    await box.evaluate("(box) => (box.scrollTop = 2000)")
    await expect(button.get_by_text("Scroll to the end")).to_be_visible()
    place = await box.evaluate("(box) => box.scrollTop")
    await page.evaluate("() => { window.tail.served.shown = window.tail.all.length; }")
    await expect(page.locator(".tail-more").last).to_be_visible()
    assert await box.evaluate("(box) => box.scrollTop") == place
    await button.get_by_text("Scroll to the end").click()
    await _shows(page, "line 100000 of")
    assert await box.evaluate("(box) => box.scrollHeight - box.scrollTop - box.clientHeight < 5")
    counts = await page.evaluate("() => window.tail.counts()")
    assert counts["nodes"] <= 20_000 + 100
    assert counts["batches"] <= counts["frames"] + 5
    await page.locator(".tail-more").first.click()
    await _shows(page, "line 92500 of")
    async with page.expect_download() as saving:
        await button.get_by_text("Save").click()
    saved = await (await saving.value).path()
    text = await asyncio.to_thread(Path(saved).read_text)
    assert text.startswith("line 1 of") and text.count("\n") == 100_000
    await button.get_by_text("Show less").click()
    await expect(box).to_have_text("line 1")


async def _shows(page: Page, words: str) -> None:
    # A megabyte is no error message; a busy machine draws few frames in a second.
    await page.wait_for_function("(words) => window.tail.has(words)", arg=words, timeout=60_000)
