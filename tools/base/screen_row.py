"""One row of a screen: text to which is mostly appended, cells once the cursor moves in it."""

from __future__ import annotations

from msgspec import Struct

from tools.base.patterns import lazy_pattern

END = -1  # the column behind the last character, wherever that is
FILLER = "\0"  # the right half of a wide character

_TAB = 8
_WIDE = lazy_pattern(
    "[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
    "\U0001f300-\U0001f64f\U0001f680-\U0001f6ff\U0001f900-\U0001faff\U00020000-\U0003fffd]"
)


def _cells(text: str) -> str:
    return text if text.isascii() else _WIDE.sub(rf"\g<0>{FILLER}", text)


def fitting(text: str, columns: int) -> int:
    """The number of characters that fit into so many columns."""
    if len(text) + len(_WIDE.findall(text, 0, columns)) <= columns:
        return len(text)
    fit = 0
    for character in text:
        columns -= 2 if _WIDE.match(character) else 1
        if columns < 0:
            break
        fit += 1
    return fit


def has_wide(text: str) -> bool:
    return not text.isascii() and _WIDE.search(text) is not None


class Row(Struct):
    """`styles` has a character for each of `text`, or none at all if it is plain. `wrapped`: the next row goes on.

    A column is an index once the row is `laid`: wide characters have a filler behind them then, and tabs are blanks.
    """

    text: str = ""
    styles: str = ""
    wrapped: bool = False
    laid: bool = False
    edited: bool = False  # blanks at its end are what was overwritten

    def shown(self) -> str:
        """The text as a person sees it."""
        text = self.text.replace(FILLER, "") if self.laid else self.text
        return text.rstrip(" ") if self.edited else text

    def shown_cells(self) -> tuple[str, str]:
        """The text, and the style of each of its characters."""
        styles = self.styles.ljust(len(self.text), "\0")
        if self.laid and FILLER in self.text:
            styles = "".join(style for style, cell in zip(styles, self.text, strict=True) if cell != FILLER)
        return (text := self.shown()), styles[: len(text)]

    def append(self, text: str, style: int) -> None:
        if style or self.styles:
            self.styles = self.styles.ljust(len(self.text), "\0") + chr(style) * len(text)
        self.text += text

    def lay(self) -> None:
        """Make each column an index."""
        if self.laid:
            return
        self.laid = True
        text = _cells(self.text)
        if "\t" not in text and text == self.text:
            return
        styles = iter(self.styles.ljust(len(self.text), "\0"))
        laid: list[str] = []
        laid_styles: list[str] = []
        at = 0
        for character in text:
            style = laid_styles[-1] if character == FILLER else next(styles)
            size = _TAB - at % _TAB if character == "\t" else 1
            laid.append(" " * size if character == "\t" else character)
            laid_styles.extend([style] * size)
            at += size
        self.text = "".join(laid)
        self.styles = "".join(laid_styles) if self.styles else ""

    def column(self, at: int) -> int:
        """A number for the column; the row is laid."""
        self.lay()
        return len(self.text) if at == END else at

    def put(self, at: int, text: str, style: int) -> int:
        """Overwrite from column `at` on; return the column behind."""
        self.lay()
        text = _cells(text)
        end = at + len(text)
        self._replace(at, end, text, style)
        return end

    def blank(self, start: int, end: int) -> None:
        """Erase columns."""
        self.lay()
        if end >= len(self.text):
            self._cut(start)
        elif start < end:
            self._replace(start, end, " " * (end - start), 0)

    def clear(self) -> None:
        self.text = self.styles = ""
        self.laid = self.edited = self.wrapped = False

    def insert(self, at: int, count: int, most: int) -> None:
        """Insert blanks; what is moved beyond `most` columns is gone."""
        self._splice(at, at, " " * count)
        self.blank(most, len(self.text))

    def delete(self, at: int, count: int) -> None:
        self._splice(at, at + count, "")

    def _splice(self, start: int, end: int, text: str) -> None:
        self.lay()
        if start >= len(self.text):
            return
        self.edited = True
        if self.styles:
            self.styles = self.styles[:start] + "\0" * len(text) + self.styles[end:]
        self.text = self.text[:start] + text + self.text[end:]

    def _cut(self, at: int) -> None:
        if at < len(self.text):
            if self.text[at] == FILLER and at:
                self.text = self.text[: at - 1] + " " + self.text[at:]
            self.text, self.styles = self.text[:at], self.styles[:at]
            self.edited = True
        self.wrapped = False

    def _replace(self, start: int, end: int, text: str, style: int) -> None:
        old = self.text
        if start > len(old):
            old = old.ljust(start)
        if style or self.styles:
            styles = self.styles.ljust(len(old), "\0")
            self.styles = styles[:start] + chr(style) * (end - start) + styles[end:]
        before, behind = old[:start], old[end:]
        if old[start : start + 1] == FILLER and before:  # half of a wide character is a blank
            before = before[:-1] + " "
        if behind[:1] == FILLER:
            behind = " " + behind[1:]
        self.edited |= start != len(self.text)
        self.text = before + text + behind
