"""A real terminal screen in a card: all that programs write to one, keys, size, search, and the way out of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.models.replies import native_bash
from tests.support.page.browser import Locator, Page, browsing, expect, home, shot
from tests.support.page.stories import IN_VIEW, cards, page_of_turn, unfold
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

# What a program writes -> what a screen of 6 rows and 20 columns shows: by pyte 0.8.2, and by ECMA-48 and the table of
# control sequences of xterm (ctlseqs) where pyte does not follow them.
SEQUENCES = [
    ("cursor position (CUP)", "\x1b[3;5Hx\x1b[1;1Hy", "y\n\n    x"),
    ("cursor position (HVP)", "\x1b[2;2fx", "\n x"),
    ("cursor up (CUU)", "a\r\nb\x1b[Ac", "ac\nb"),
    ("cursor down (CUD)", "a\x1b[2Bb", "a\n\n b"),
    ("cursor forward (CUF)", "a\x1b[3Cb", "a   b"),
    ("cursor back (CUB)", "abc\x1b[2Dx", "axc"),
    ("next line (CNL)", "abc\x1b[2Ex", "abc\n\nx"),
    ("previous line (CPL)", "a\r\nb\r\nccc\x1b[2Fx", "x\nb\nccc"),
    ("column (CHA)", "abcdef\x1b[3Gx", "abxdef"),
    ("row (VPA)", "ab\x1b[4dx", "ab\n\n\n  x"),
    ("column (HPA)", "abc\x1b[2`x", "axc"),
    ("right by columns (HPR)", "ab\x1b[2ax", "ab  x"),
    ("down by rows (VPR)", "ab\x1b[2ex", "ab\n\n  x"),
    ("erase to the end of the screen (ED 0)", "one\r\ntwo\r\nthree\x1b[2;2H\x1b[J", "one\nt"),
    ("erase from the beginning of the screen (ED 1)", "one\r\ntwo\r\nthree\x1b[2;2H\x1b[1J", "\n  o\nthree"),
    ("erase the screen (ED 2)", "one\r\ntwo\x1b[2Jx", "\n   x"),
    ("erase to the end of the line (EL 0)", "abcdef\x1b[3G\x1b[K", "ab"),
    ("erase from the beginning of the line (EL 1)", "abcdef\x1b[3G\x1b[1K", "   def"),
    ("erase the line (EL 2)", "abcdef\x1b[3G\x1b[2Kx", "  x"),
    ("erase characters (ECH)", "abcdef\x1b[2G\x1b[3X", "a   ef"),
    ("insert characters (ICH)", "abcdef\x1b[2G\x1b[2@x", "ax bcdef"),
    ("delete characters (DCH)", "abcdef\x1b[2G\x1b[2P", "adef"),
    ("insert lines (IL)", "one\r\ntwo\r\nthree\x1b[2;1H\x1b[Lnew", "one\nnew\ntwo\nthree"),
    ("delete lines (DL)", "one\r\ntwo\r\nthree\x1b[2;1H\x1b[M", "one\nthree"),
    ("scroll region (DECSTBM)", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\n x", "1\n3\n x\n4"),
    ("reverse index (RI)", "one\r\ntwo\x1b[1;1H\x1bMtop", "top\none\ntwo"),
    ("index (IND)", "one\x1bDx", "one\n   x"),
    ("next line (NEL)", "one\x1bEx", "one\nx"),
    ("save and restore the cursor (DECSC, DECRC)", "ab\x1b7cd\x1b8x", "abxd"),
    ("insert mode (IRM)", "abc\x1b[1G\x1b[4hx\x1b[4l", "xabc"),
    ("no wrapping at the margin (DECAWM)", "\x1b[?7l" + "x" * 25 + "y\x1b[?7h", "x" * 19 + "y"),
    ("wrapping at the margin: copied as one line", "x" * 22, "x" * 22),
    ("origin mode (DECOM)", "\x1b[2;4r\x1b[?6h\x1b[1;1Hx\x1b[?6l", "\nx"),
    ("tabulator", "a\tb\tc", "a       b       c"),
    ("tabulator set (HTS) and cleared (TBC)", "\x1b[3g\x1b[5G\x1bH\x1b[1Ga\tb", "a   b"),
    ("line drawing (DEC special graphics)", "\x1b(0lqk\x1b(B", "┌─┐"),
    ("alignment test (DECALN)", "\x1b#8", "\n".join(["E" * 20] * 6)),
    ("full reset (RIS)", "abc\x1bcx", "x"),
    ("wide characters", "日本x", "日本x"),
    ("line feed without a carriage return", "ab\ncd", "ab\n  cd"),
    ("carriage return, backspace", "abc\rx\b\by", "ybc"),
    ("half of a wide character", "日本\rx", "x 本"),
    ("scroll up (SU)", "1\r\n2\r\n3\x1b[S", "2\n3"),
    ("scroll down (SD)", "1\r\n2\x1b[T", "\n1\n2"),
    ("repeat (REP)", "ab\x1b[3b", "abbbb"),
    ("alternate screen", "main\x1b[?1049h\x1b[2Jother\x1b[?1049l", "main"),
    ("on the alternate screen", "main\x1b[?1049h\x1b[2J\x1b[Hother", "other"),
    ("save and restore the cursor (SCOSC, SCORC)", "ab\x1b[scd\x1b[ux", "abxd"),
]
SHOWN = """
async (rows) => {
  const { loadScreen, Screen } = await import(
    document.querySelector('script[src*="main.js"]').src.replace("main.js", "terminal/screen.js"));
  const parts = await loadScreen();
  const box = document.createElement("div");
  box.className = "tail";
  document.querySelector("main").replaceChildren(box);
  const shown = [];
  for (const written of rows) {
    const screen = new Screen(parts, box, { label: "Screen", size: { columns: 20, rows: 6 }, onLeave: () => null });
    await screen.write(written);
    shown.push(screen.text);
    screen.close();
    box.replaceChildren();
  }
  return shown;
}
"""
COLOURS = """
async () => {
  const { loadScreen, Screen } = await import(
    document.querySelector('script[src*="main.js"]').src.replace("main.js", "terminal/screen.js"));
  const box = document.querySelector("main > .tail");
  const screen = new Screen(await loadScreen(), box, { label: "Screen", size: { columns: 40, rows: 2 } });
  await screen.write("\\x1b[38;2;10;200;30mtrue\\x1b[0m \\x1b[38;5;208morange\\x1b[0m \\x1b[1;32mbold");
}
"""


async def test_a_screen_shows_what_a_terminal_would(tmp_path: Path) -> None:
    assert len(SEQUENCES) >= 27
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        shown = await page.evaluate(SHOWN, [written for _, written, _ in SEQUENCES])
        wrong = {name: text for (name, _, right), text in zip(SEQUENCES, shown, strict=True) if text != right}
        assert not wrong
        await page.evaluate(COLOURS)  # the policy allows no styles in attributes and elements
        for words, colour in (("true", "10, 200, 30"), ("orange", "255, 135, 0"), ("bold", "126, 231, 135")):
            await expect(page.locator(".xterm-rows").get_by_text(words)).to_have_css("color", f"rgb({colour})")


PROGRAM = """
import os, signal, sys, termios, tty
def size(*_):
    columns, rows = os.get_terminal_size(0)
    os.write(1, b"\\x1b[2;3Hsize %dx%d " % (columns, rows))
os.write(1, b"\\x1b[?1049h\\x1b[2J\\x1b[1;1Hready")
signal.signal(signal.SIGWINCH, size)
tty.setraw(0)
size()
while not (key := os.read(0, 9)).startswith(b"q"):
    os.write(1, b"\\x1b[4;3Hkey " + key.hex().encode() + b"\\x1b[K")
os.write(1, b"\\x1b[?1049l")
"""


async def test_a_program_that_draws_is_shown_and_typed_into(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/draws.py").write_text(PROGRAM)
    async with page_of_turn(tmp_path, [native_bash("python3 draws.py")], "Done.") as (_, _, page):
        card, rows = cards(page), cards(page).locator(".xterm-rows")
        await expect(rows).to_contain_text("ready")
        await expect(rows).to_contain_text(re.compile(r"size \d+x(1\d|2\d) "))  # not the 40 rows that it began with
        keys = card.get_by_role("textbox", name="Output of bash")
        await keys.focus()
        for pressed, sent in (("ArrowUp", "1b5b41"), ("Control+c", "03"), ("Tab", "09")):
            await page.keyboard.press(pressed)
            await expect(rows).to_contain_text(f"key {sent}")
        await shot(page, "screen")
        await page.keyboard.press("Control+Shift+L")
        await expect(card.get_by_role("button", name="As lines")).to_be_focused()
        await _found(card)
        await _narrow(page, rows)
        await card.get_by_role("button", name="Input").click()
        await card.get_by_label("Type into this command").fill("q")
        await card.get_by_role("button", name="Send").click()
        await expect(card).to_have_attribute("data-state", "done")
        await expect(card.locator(".xterm-rows")).to_have_count(0)  # it leaves nothing, as on a terminal
        await expect(card).to_contain_text("No output.")


async def _found(card: Locator) -> None:
    await card.get_by_role("button", name="Search").click()
    await card.get_by_role("searchbox", name="Search").fill("nowhere")
    await expect(card.get_by_role("status")).to_have_text("No match")
    await card.get_by_role("searchbox", name="Search").fill("ready")
    await expect(card.get_by_role("status")).to_have_text("")
    await card.get_by_role("searchbox", name="Search").press("Escape")
    await expect(card.get_by_role("button", name="Search")).to_be_focused()


async def _narrow(page: Page, rows: Locator) -> None:
    """The program's terminal follows the width of the card."""
    found = await rows.inner_text()
    before = re.search(r"size (\d+)x", found.replace("\xa0", " "))
    assert before
    await page.set_viewport_size({"width": 700, "height": 800})
    await expect(rows).not_to_contain_text(f"size {before[1]}x")


async def test_lines_become_a_screen_where_lines_cannot_show_them(tmp_path: Path) -> None:
    drawn = (
        "printf 'a: wait\\nb: wait\\n'; printf '\\033[2A\\033[2Ka: done\\n'; seq 1 20; printf '\\033[32mend\\033[m\\n'"
    )
    async with page_of_turn(tmp_path, [native_bash(drawn)], [native_bash("seq 1 3000")], "Done.") as (_, _, page):
        card, lines = cards(page), cards(page, 1)
        await expect(lines).to_have_attribute("data-state", "done")
        await expect(lines.locator(".tail-count")).to_contain_text("3,000 lines · the model saw 1,")
        await unfold(page)
        await card.get_by_role("button", name="Show all").click()
        await expect(card.locator(".xterm-rows")).to_contain_text("a: done")
        await card.get_by_role("button", name="As lines").click()
        await expect(card.locator(".tail-block").first).to_contain_text("a: wait")
        await lines.get_by_role("button", name="Search").click()
        await expect(lines.locator(".xterm")).to_have_count(0)
        await lines.get_by_role("searchbox").fill("299")
        await expect(lines.get_by_role("status")).to_have_text("1 of 13")
        await page.keyboard.press("Shift+Enter")
        await expect(lines.get_by_role("status")).to_have_text("13 of 13")
        assert json.loads(await lines.locator(".tail").evaluate(IN_VIEW)) == "2999"


# A screen alone, of which the test decides what is written.
ALONE = """
async () => {
  const { loadScreen, Screen } = await import("/page/js/terminal/screen.js");
  const box = document.createElement("div");
  box.className = "tail";
  document.querySelector("main").replaceChildren(box);
  window.shown = new Screen(await loadScreen(), box, { label: "Screen", size: { columns: 20, rows: 6 } });
}
"""
KEPT = "shown.find('ready', { keep: true })"


async def test_a_search_that_is_refreshed_knows_what_was_written_anew_and_leaves_a_selection(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await page.evaluate(ALONE)
        await page.evaluate("shown.write('ready')")
        assert await page.evaluate(KEPT) is True
        await page.evaluate("shown.reset()")
        await page.evaluate("shown.write('another')")
        assert await page.evaluate(KEPT) is False
        await page.locator(".xterm-rows").get_by_text("another").dblclick(force=True)  # the screen is above it
        await page.evaluate("shown.write(' ready')")
        assert await page.evaluate(KEPT) is None  # it has not looked
        assert await page.evaluate("shown.text") == "another"  # still selected
