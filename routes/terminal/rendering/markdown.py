"""Blocks of Markdown as lines for a terminal: headings, lists, tables, and code with colours.

The text is a model's. What Markdown makes of it may hold what `printable` has taken out of the source (`&#27;` is an
escape character), so each piece of a rendered line passes it again. Links are shown with their address instead of
becoming links of the terminal, which hide it. Formulas stand as they were written: none is drawn here, and one that is
copied is the model's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import BlockQuote, CodeBlock, Heading, HorizontalRule, Markdown, MarkdownElement
from rich.padding import Padding
from rich.rule import Rule
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from routes.terminal.rendering.blocks import is_formula
from routes.terminal.view import printable
from routes.texts import text
from tools.base.patterns import lazy_pattern

# As the page has them (markdown/math.js): neither money nor variables of a shell. None holds the beginning of another:
# a search for its end would pass all those without one.
FORMULA = lazy_pattern(
    r"(?<!\w)(?:\$\$[^$]+\$\$|\$(?![\s$])(?:[^$\\\n]|\\.)*(?<!\s)\$(?![^\W_]))"
    r"|\\\((?!\s*\\\))(?:[^\\]|\\[^(])+?\\\)|\\\[(?!\s*\\\])(?:[^\\]|\\[^\[])+?\\\]",
    re.DOTALL,
)
MONEY = lazy_pattern(r"\$\d[\d.,]*(?![^$]*[\\^_={}<>+])[^$]*[^\W\d_]{2}")
ALERT = lazy_pattern(r"\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\][ \t]*$", re.IGNORECASE)
ALERTS = {"note": "blue", "tip": "green", "important": "magenta", "warning": "yellow", "caution": "red"}
MOST_COLOURED = 200_000  # characters of one block of code that are given colours
THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold italic",
        "markdown.block_quote": "dim",
        "markdown.item.bullet": "bold",
        "markdown.item.number": "bold",
        "markdown.hr": "dim",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
        "markdown.link": "none",
        "markdown.link_url": "dim underline",
    }
)


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        if len(code) > MOST_COLOURED:
            yield Padding(Text(code), (0, 0, 0, 2))
            return
        # A terminal's own colours: they fit the background that the person has chosen.
        yield Padding(Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True), (0, 0, 0, 2))


class _Rule(HorizontalRule):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(style="markdown.hr")


class _Quote(BlockQuote):
    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _Quote:
        quote = cls()
        quote.style_name = str(token.meta.get("style", cls.style_name))
        return quote


class _Markdown(Markdown):
    def __init__(self, source: str, code_theme: str) -> None:
        super().__init__("", hyperlinks=False, code_theme=code_theme)
        self.parsed = _parser().parse(source)
        _mark_alerts(self.parsed)

    elements: Mapping[str, type[MarkdownElement]] = Markdown.elements | {  # type: ignore[misc,assignment]
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "hr": _Rule,
        "blockquote_open": _Quote,
    }


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt().enable("strikethrough").enable("table")
    parser.inline.ruler.before("escape", "formula", _formula)
    return parser


def _formula(state: StateInline, silent: bool) -> bool:
    """A rule for formulas in lines: what is in one is no Markdown."""
    found = FORMULA.match(state.src, state.pos, state.posMax)
    if not found or MONEY.match(found[0]):
        return False
    if not silent:
        state.push("code_inline", "code", 0).content = found[0]
    state.pos = found.end()
    return True


def _mark_alerts(tokens: list[Token]) -> None:
    """Give an alert (`> [!NOTE]`) its colour, and its name in place of the mark."""
    for quote, _, line in zip(tokens, tokens[1:], tokens[2:], strict=False):
        mark, *rest = line.children or [Token("", "", 0)]
        found = ALERT.match(mark.content) if quote.type == "blockquote_open" else None
        if found and (not rest or rest[0].type == "softbreak"):
            quote.meta["style"] = ALERTS[found[1].lower()]
            mark.content = text(f"markdown.alert.{found[1].lower()}")
            rest[:1] = [Token("hardbreak", "br", 0)] if rest else []
            line.children = [Token("strong_open", "strong", 1), mark, Token("strong_close", "strong", -1), *rest]


@cache
def code_theme(background: str) -> str:
    """The colours of code for a terminal whose COLORFGBG is this: dark unless that says otherwise."""
    return "ansi_light" if background.rpartition(";")[2] in ("7", "15") else "ansi_dark"


def rendered(source: str) -> RenderableType:
    """A block as something that a console prints; without an escape sequence, whatever the source holds."""
    if is_formula(source):
        return Text(printable(source), "cyan")  # the terminal wraps it, so that it can be copied
    return _Sanitised(_Markdown(source, code_theme(os.environ.get("COLORFGBG", ""))))


class _Sanitised:
    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        with console.use_theme(THEME):
            lines = console.render_lines(self._inner, options, pad=False)
        lines = [list(_trimmed(line)) for line in lines]
        first = next((at for at, line in enumerate(lines) if line), len(lines))
        end = next((at for at in range(len(lines), first, -1) if lines[at - 1]), first)
        for line in lines[first:end]:
            yield from line
            yield Segment.line()


def _trimmed(line: Sequence[Segment]) -> Iterator[Segment]:
    """The line without spaces at its end: a terminal that becomes narrower would wrap them."""
    end = len(line)
    while end and not line[end - 1].text.strip():
        end -= 1
    for at, segment in enumerate(line[:end]):
        text = segment.text.rstrip() if at == end - 1 else segment.text
        yield Segment(printable(text), segment.style)
