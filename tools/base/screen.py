"""The screen of a terminal, for output that is read as text: what a person would see of it in the end.

Text in, in any slicing; rows that have left the screen come out, in order, and never change again. So a progress bar
of 400 steps is its last step, and a log of a gigabyte passes through with 40 rows in memory. The rows that are still on
the screen can be changed by cursor moves, as on a terminal. Colours are kept on these only, for people.

An escape sequence may come in two pieces; what is longer than any real one is text. Whatever is not known is dropped.
A program on the alternate screen (an editor, a pager) leaves nothing behind, as on a terminal.

Speed decides its form: text without control characters is not looked at character by character.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from tools.base.patterns import lazy_pattern
from tools.base.screen_moves import apply_control, apply_escape, apply_sequence
from tools.base.screen_style import Styles
from tools.base.screen_view import HEIGHT, WIDE, View

_PARAMETERS, _BETWEEN = 128, 8  # characters of one sequence
_TOKEN = lazy_pattern(
    rf"""
    (?P<text>[^\x00-\x08\x0b-\x1f\x7f-\x9f]+)
    | (?P<start>\r+)
    | (?P<back>\x08+)
    | (?:\x1b\[|\x9b)(?P<parameters>[0-?]{{0,{_PARAMETERS}}})[\ -/]{{0,{_BETWEEN}}}(?P<sequence>[@-~])
    | (?P<string>\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])
    | \x1b[\ -/]{{0,{_BETWEEN}}}(?P<escape>[0-Z\\`-~])
    | (?P<control>[\x00-\x1f\x7f-\x9f])
    """,
    re.VERBOSE,
)
_UNFINISHED = lazy_pattern(
    rf"(?:\x1b\[|\x9b)[0-?]{{0,{_PARAMETERS}}}[ -/]{{0,{_BETWEEN}}}|\x1b[ -/]{{0,{_BETWEEN}}}",
)
_LONGEST = _PARAMETERS + _BETWEEN + 2  # of an unfinished sequence
# What a program writes in front of the line that it reads: `Name: `, `Go on? [y/N] `, `>>> `, `version: (1.0) `.
_QUESTION = lazy_pattern(
    r"(?:[:?>›»$]|[\[(][a-z]\w{0,3}(?:/\w{1,4})+[\])]|:\s*\([^()]*\)|\b(?:enter|return|any key)\b.{0,40})\s*$",
    re.IGNORECASE,
)
_STRING_END = lazy_pattern("[\x07\n\v\x18\x1a\x1b\x9c]")  # a line's end, too: no string swallows the rest
_HOMES = 3  # cursor moves to a row: of `clear` there is one
_OTHER_SCREEN = frozenset({"?47", "?1047", "?1049"})


class Window(Struct, frozen=True):
    """The size of a terminal, as the program in it knows it."""

    height: int = HEIGHT
    width: int = 120


class Screen:
    """`left` takes the text of rows that leave the screen. Without a `window` the program writes to a pipe: then its
    lines are as long as it likes, and a line feed begins a new one. In a terminal, that is the driver's part."""

    def __init__(self, left: Callable[[str], None], window: Window | None = None) -> None:
        size = (window.height, window.width) if window else (HEIGHT, WIDE)
        self._main = self._view = View(left, *size)
        self._other = partial(View, _nowhere, *size)
        self._exact = window is not None
        self._styles = Styles()
        self._pending = ""
        self._in_string = False
        self._homes = 0

    def feed(self, text: str) -> None:
        """Take what was written next."""
        text = self._pending + text
        held = "\r" if text.endswith("\r") else ""  # perhaps the first half of a line's end
        text = text[:-1] if held else text
        if self._exact:
            text = text.replace("\r\n", "\x85").replace("\n", "\v").replace("\x85", "\n")
        else:
            text = text.replace("\r\n", "\n")
        self._pending = ""
        at, end = 0, len(text)
        while at < end:
            at = self._skip(text, at) if self._in_string else self._step(text, at)
        self._pending += held

    def resize(self, window: Window) -> None:
        """Take another size of the terminal. Rows are not laid out anew: programs that care draw them again."""
        self._other = partial(View, _nowhere, window.height, window.width)
        self._main.resize(window.height, window.width)
        if self._view is not self._main:
            self._view.resize(window.height, window.width)

    @property
    def is_drawn(self) -> bool:
        """Return True on the alternate screen, and once a program has moved the cursor to rows some times."""
        return self._view is not self._main or self._homes >= _HOMES

    @property
    def asks(self) -> bool:
        """Return True while the cursor stands behind what looks like a question, and not on a screen that is drawn."""
        return self._view.column > 0 and not self.is_drawn and bool(_QUESTION.search(self._view.row.shown()))

    @property
    def lines(self) -> int:
        """Lines so far, an unfinished one included."""
        return self._main.lines + (self._view.lines if self._view is not self._main else 0)

    def text(self) -> str:
        """The text of the rows that have not left, as it would leave."""
        shown = self._main.text()
        if self._view is self._main:
            return shown
        return shown + ("\n" if shown and not shown.endswith("\n") else "") + self._view.text()

    def tail(self, lines: int) -> list[tuple[str, str]]:
        """The last lines on the screen, and the style of each of their characters: see `painted`."""
        found: list[tuple[str, str]] = []
        for row in reversed(self._view.filled):
            text, styles = row.shown_cells()
            if row.wrapped and found:
                found[-1] = (text + found[-1][0], styles + found[-1][1])
            elif len(found) == lines:
                break
            else:
                found.append((text, styles))
        return found[::-1]

    def painted(self, text: str, styles: str) -> str:
        """Text with the sequences of its colours."""
        return self._styles.painted(text, styles)

    def _step(self, text: str, at: int) -> int:
        """Apply the token at a position; return the position behind it."""
        token = _TOKEN.match(text, at)
        assert token
        view, found = self._view, token.group()
        match token.lastgroup:
            case "text":
                view.write(found)
            case "sequence":
                self._apply(token["parameters"], token["sequence"])
            case "start":
                view.to_column(0)
            case "back":
                view.to_column(max(0, view.column - len(found)))
            case "string":
                self._in_string = True
            case "escape":
                apply_escape(view, token["escape"])
            case _ if found in "\x1b\x9b" and len(text) - at <= _LONGEST and _UNFINISHED.fullmatch(text, at):
                self._pending = text[at:]
                return len(text)
            case _:
                apply_control(view, found)
        return token.end()

    def _skip(self, text: str, at: int) -> int:
        """Pass over the inside of a title or link."""
        found = _STRING_END.search(text, at)
        if not found:
            return len(text)
        end = found.group()
        if end == "\x1b" and found.end() == len(text):
            self._pending = "\x1b"
            return len(text)
        self._in_string = False
        if end == "\x1b" and text[found.end()] == "\\":
            return found.end() + 1
        return found.start() if end in "\n\v\x1b" else found.end()

    def _apply(self, parameters: str, final: str) -> None:
        if final == "m":
            self._view.style = self._styles.after(self._view.style, parameters)
        elif final in "hl" and parameters in _OTHER_SCREEN:
            self._switch(to_other=final == "h")
        else:
            self._homes += final in "Hfd"
            apply_sequence(self._view, final, parameters)

    def _switch(self, *, to_other: bool) -> None:
        style = self._view.style
        if to_other and self._view is self._main:
            self._view = self._other()
        elif not to_other:
            self._view = self._main
        self._view.style = style


def without_controls(text: str) -> str:
    """A text as a terminal would show it in the end."""
    left: list[str] = []
    screen = Screen(left.append)
    screen.feed(text)
    return "".join(left) + screen.text()


def _nowhere(_: str) -> None:
    """Drop what scrolls off the alternate screen."""
