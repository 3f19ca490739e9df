"""Colours and other styles of text on a terminal's screen: SGR parameters in, the shortest sequence out."""

from __future__ import annotations

from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

MOST = 4_096  # different styles of one output; later ones are shown without
RESET = "\x1b[0m"

_EXTENDED = {"5": 1, "2": 3}  # 38;5;number and 38;2;red;green;blue
# What a parameter switches off.
_OFF = {22: (1, 2), 23: (3,), 24: (4,), 25: (5,), 27: (7,), 28: (8,), 29: (9,)}


class Style(Struct, frozen=True):
    """`flags` are the parameters of bold, italic and so on; the colours are parameters, too."""

    flags: tuple[int, ...] = ()
    foreground: str = ""
    background: str = ""

    @property
    def parameters(self) -> str:
        return ";".join(filter(None, (*map(str, self.flags), self.foreground, self.background)))


PLAIN = Style()


class Styles:
    """All styles of one output, numbered in their order; 0 is plain text."""

    def __init__(self) -> None:
        self._numbers: dict[Style, int] = {PLAIN: 0}
        self._sequences = [""]
        self._next: dict[tuple[int, str], int] = {}
        self._styles = [PLAIN]

    def after(self, number: int, parameters: str) -> int:
        """The number of the style that follows when these parameters are applied to style `number`."""
        known = self._next.get((number, parameters))
        if known is None:
            known = self._number(styled(self._styles[number], parameters))
            if len(self._next) < MOST:
                self._next[number, parameters] = known
        return known

    def _number(self, style: Style) -> int:
        if style not in self._numbers:
            if len(self._styles) >= MOST:
                return 0
            self._numbers[style] = len(self._styles)
            self._styles.append(style)
            self._sequences.append(f"\x1b[{style.parameters}m")
        return self._numbers[style]

    def painted(self, text: str, numbers: str) -> str:
        """`text` with the sequences of its styles, one character of `numbers` for each of its own."""
        if not numbers.strip("\0"):
            return text
        pieces, at = [], 0
        for number, run in groupby(numbers):
            end = at + len(list(run))
            piece = text[at:end]
            pieces.append(f"{self._sequences[ord(number)]}{piece}{RESET}" if number != "\0" else piece)
            at = end
        return "".join(pieces)


def styled(style: Style, parameters: str) -> Style:
    """Apply the parameters of one SGR sequence; unknown ones change nothing."""
    words = parameters.replace(":", ";").split(";")
    at = 0
    while at < len(words):
        word = words[at] or "0"
        at += 1
        if word in ("38", "48"):
            size = 1 + _EXTENDED.get(words[at], len(words)) if at < len(words) else 0
            colour = words[at : at + size]
            at += size
            if len(colour) == size and size and all(part.isdecimal() and len(part) <= 3 for part in colour):
                side = "foreground" if word == "38" else "background"
                style = replace(style, **{side: ";".join((word, *colour))})
        elif word.isdecimal() and len(word) <= 3:
            style = _changed(style, int(word))
    return style


def _changed(style: Style, number: int) -> Style:
    if number == 0:
        return PLAIN
    if number <= 9:
        return replace(style, flags=tuple(sorted({*style.flags, number})))
    if number in _OFF:
        return replace(style, flags=tuple(flag for flag in style.flags if flag not in _OFF[number]))
    if 30 <= number <= 39 or 90 <= number <= 97:
        return replace(style, foreground="" if number == 39 else str(number))
    if 40 <= number <= 49 or 100 <= number <= 107:
        return replace(style, background="" if number == 49 else str(number))
    return style
