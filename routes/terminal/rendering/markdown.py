"""Blocks of Markdown as lines for a terminal: headings, lists, tables, and code with colours.

The text is a model's. What Markdown makes of it may hold what `printable` has taken out of the source (`&#27;` is an
escape character), so each piece of a rendered line passes it again. Links are shown with their address instead of
becoming links of the terminal, which hide it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, HorizontalRule, Markdown, MarkdownElement
from rich.padding import Padding
from rich.rule import Rule
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from routes.terminal.view import printable

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


class _Markdown(Markdown):
    elements: Mapping[str, type[MarkdownElement]] = Markdown.elements | {  # type: ignore[misc,assignment]
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "hr": _Rule,
    }


@cache
def code_theme(background: str) -> str:
    """The colours of code for a terminal whose COLORFGBG is this: dark unless that says otherwise."""
    return "ansi_light" if background.rpartition(";")[2] in ("7", "15") else "ansi_dark"


def rendered(source: str) -> RenderableType:
    """A block as something that a console prints; without an escape sequence, whatever the source holds."""
    markdown = _Markdown(source, hyperlinks=False, code_theme=code_theme(os.environ.get("COLORFGBG", "")))
    return _Sanitised(markdown)


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
