"""Formulas and alerts in the terminal: a formula stays as the model wrote it, an alert has its name and colour."""

from __future__ import annotations

import io
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from routes.terminal.rendering.blocks import Blocks
from routes.terminal.rendering.markdown import rendered
from routes.terminal.screen import print_piece


def shown(source: str, *, width: int = 60, colours: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=colours, markup=False, highlight=False, emoji=False)
    cut = Blocks()
    for block in (*cut.feed(source), *cut.finish()):
        print_piece(console, rendered(block))
    return file.getvalue()


DISPLAY = "$$\n2\\,T\\!\\left(\\frac{n}{2}\\right)\n- 3\n= O(n) \\\\\n# 1_a_ *b* & `c`\n$$\n"


@pytest.mark.parametrize(
    "source",
    [
        "so $T\\!\\left(n\\right)=2\\,T$ is\n",
        "so \\(a\\,b\\) and \\[c_d * e_f *\\] are\n",
        "$$a\\,b$$\n",
        "\\[\na\\,b\n\\]\n",
        DISPLAY,
        "$x$, $y_1 * z_1 * 2$.\n",
        "\\[ unfinished\\,",
    ],
)
def test_a_formula_is_printed_as_it_was_written(source: str) -> None:
    assert shown(source) == source if source.endswith("\n") else shown(source).startswith(source)


def test_a_long_formula_is_one_line_to_copy() -> None:
    formula = "$$" + "a\\,+ " * 40 + "$$\n"
    assert shown(formula, width=30) == formula


@pytest.mark.parametrize("mark", ["\\(", "x \\["])
def test_formulas_without_an_end_take_no_time(mark: str) -> None:
    began = time.monotonic()
    assert shown(f"{mark} " * 20_000).count(mark[-1]) == 20_000
    assert time.monotonic() - began < 15, "each must not look at all the others"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("It costs $5 or *$10*, US$5 to US$6.\n", "It costs $5 or $10, US$5 to US$6.\n"),
        ("$HOME and *$PATH*\n", "$HOME and $PATH\n"),
        ("`$a\\,b$` *x*\n", "$a\\,b$ x\n"),
        ("\\*no\\* \\$5\\, $x\n", "*no* $5, $x\n"),
        ("$$ is *open*\n\n*x*\n", "$$ is *open*\nx\n"),
        ("- $a\\,b$\n- b\n", " • $a\\,b$\n • b\n"),
        ("\\(\\) \\( \\)\n", "() ( )\n"),
    ],
)
def test_what_is_no_formula_stays_text(source: str, text: str) -> None:
    assert shown(source) == text


@settings(deadline=None)
@given(st.lists(st.integers(0, len(DISPLAY) + 5)))
def test_a_formula_is_one_block_in_any_slicing(cuts: list[int]) -> None:
    source = f"a\n{DISPLAY}b\n"
    cut, ends = Blocks(), [0, *sorted(cuts), len(source)]
    blocks = [block for a, b in pairwise(ends) for block in cut.feed(source[a:b])]
    assert [*blocks, *cut.finish()] == ["a\n", DISPLAY, "b\n"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("NOTE", "Note"), ("tip", "Tip"), ("IMPORTANT", "Important"), ("WARNING", "Warning"), ("Caution", "Caution")],
)
@pytest.mark.parametrize("width", [20, 60])
def test_an_alert_has_its_name_and_a_bar(kind: str, name: str, width: int) -> None:
    lines = shown(f"> [!{kind}]\n> See **this**\n> - a\n>\n> ```py\n> x\n> ```\n", width=width).splitlines()
    assert lines == [f"▌ {name}", "▌ See this", "▌  • a", "▌   x"]


def test_an_alert_is_coloured_and_a_quote_is_not_an_alert() -> None:
    assert "\x1b[1;31mCaution" in shown("> [!CAUTION]\n> x\n", colours=True)
    assert shown("> [!NOTE] beside\n") == "▌ [!NOTE] beside\n"
    assert shown("> [!OTHER]\n> x\n") == "▌ [!OTHER] x\n"
    assert shown("> [!WARNING]\n").splitlines()[0] == "▌ Warning"
    assert "\x1b[2J" not in shown("> [!NOTE]\n> $&#27;[2J$ &#27;[2J\n")
