"""Markdown that streams in, cut into blocks that are finished: each is rendered once, and only the last one redrawn.

A block is a paragraph, a heading, a table, a fence, a formula, a quote, or one item of a list: the next item makes no
difference to it. Lines decide, so any slicing of a text gives the same blocks, and a line is looked at once.
"""

from __future__ import annotations

import re

from tools.base.patterns import lazy_pattern

_FENCE = lazy_pattern(r"( {0,3})(`{3,}|~{3,}|\$\$(?!\$)|\\\[)([^\n]*)")
_FORMULAS = {"$$": "$$", "\\[": "\\]"}  # what begins a formula of its own lines, and what ends it
_MARKER = lazy_pattern(r"( {0,3})([-+*]|\d{1,9}[.)])( +|$)")
_HEADING = lazy_pattern(r" {0,3}#{1,6}(?:[ \t]|$)")
_RULE = lazy_pattern(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$")
_UNDERLINE = lazy_pattern(r" {0,3}(?:-+|=+)[ \t]*$")
_DELIMITERS = lazy_pattern(r"[ |:-]*-[ |:-]*\n")
_QUOTE = lazy_pattern(r" {0,3}>")

LONGEST = 4_000  # characters of an unfinished line that `last_lines` gives


class Blocks:
    """Takes a text in any slicing and gives its finished blocks. `pending` is what may still change."""

    def __init__(self) -> None:
        self._lines: list[str] = []  # of the block that is not finished
        self._tail: list[str] = []  # of the line that is not finished
        self._item = 0  # the column at which the content of a list's item begins; 0 outside of a list
        self._fence = ""  # that is open
        self._quote = False
        self._blank = False  # the last line was blank

    @property
    def pending(self) -> str:
        return "".join((*self._lines, *self._tail))

    def last_lines(self, most: int) -> str:
        """The end of `pending`: its cost does not grow with the block. The head of a fence or table stays in front."""
        head = ""
        lines = self._lines
        if len(lines) > most:
            table = len(lines) > 1 and _DELIMITERS.match(lines[1])
            head = lines[0] if self._fence and not self._item else "".join(lines[:2]) if table else ""
            lines = lines[-most:]
        return head + "".join((*lines, "".join(self._tail)[-LONGEST:]))

    def feed(self, text: str) -> list[str]:
        """Take more of the text and return the blocks that it finishes."""
        *whole, rest = text.split("\n")
        finished: list[str] = []
        for line in whole:
            self._take("".join((*self._tail, line)), finished)
            self._tail.clear()
        if rest:
            self._tail.append(rest)
        return finished

    def finish(self) -> list[str]:
        """Return what is left as blocks: the text has ended."""
        finished = self.feed("\n") if self._tail else []
        self._end(finished)
        return finished

    def _take(self, line: str, finished: list[str]) -> None:
        if self._fence in _FORMULAS and not line.strip():
            self._fence = ""  # a formula has no blank line: it was none
        if self._fence:
            self._lines.append(f"{line}\n")
            if _closes(self._fence, line):
                self._fence = ""
                if not self._item:
                    self._end(finished)
            return
        if not line.strip():
            self._blank = True
            if self._item:
                self._lines.append("\n")
            else:
                self._end(finished)
            return
        self._begin(line, finished)
        self._blank = False
        self._lines.append(f"{line}\n")
        if self._fence or self._item or self._quote:
            return
        if _HEADING.match(line) or _RULE.match(line) or (len(self._lines) > 1 and _UNDERLINE.match(line)):
            self._end(finished)

    def _begin(self, line: str, finished: list[str]) -> None:
        """End the block before this line if the line is none of it, and note what the line begins."""
        indent = len(line) - len(line.lstrip(" "))
        if self._item and indent >= self._item:
            self._open_fence(line[self._item :])
            return
        marker, opened = _MARKER.match(line), _FENCE.match(line)
        rule = _RULE.match(line) and not (self._lines and not self._item and _UNDERLINE.match(line))
        starts = marker and not rule and (not self._lines or bool(self._item) or _interrupts(marker, line))
        interrupts = starts or rule or _HEADING.match(line) or (opened and _opens(opened))
        quoted = bool(_QUOTE.match(line))
        if interrupts or (self._item and self._blank) or (quoted and not self._quote):
            self._end(finished)
        if marker and starts:
            self._item = len(marker[0]) if marker[3] and len(marker[3]) <= 4 else len(marker[1]) + len(marker[2]) + 1
            self._open_fence(line[self._item :])
        elif quoted:
            self._quote = True
        elif not self._item:
            self._open_fence(line)

    def _open_fence(self, line: str) -> None:
        opened = _FENCE.match(line)
        if opened and _opens(opened):
            self._fence = opened[2]

    def _end(self, finished: list[str]) -> None:
        block = "".join(self._lines).rstrip("\n")
        if block.strip():
            finished.append(block + "\n")
        self._lines.clear()
        self._item, self._fence, self._quote, self._blank = 0, "", False, False


def is_item(block: str) -> bool:
    """Return whether the block is an item of a list."""
    return bool(_MARKER.match(block)) and not _RULE.match(block.rstrip("\n"))


def is_formula(block: str) -> bool:
    """Return whether the block is a formula, or begins one that is not finished."""
    opened = _FENCE.match(block)
    end = _FORMULAS.get(opened[2]) if opened else None
    return bool(opened and end and block.find(end, opened.end(2)) in (-1, len(block.rstrip()) - len(end)))


def _opens(fence: re.Match[str]) -> bool:
    if end := _FORMULAS.get(fence[2]):
        return end not in fence[3]
    return fence[2][0] == "~" or "`" not in fence[3]


def _closes(fence: str, line: str) -> bool:
    bare = line.strip()
    if end := _FORMULAS.get(fence):
        return bare.endswith(end)
    return len(bare) >= len(fence) and not bare.strip(fence[0])


def _interrupts(marker: re.Match[str], line: str) -> bool:
    """Return whether an item may begin right behind a paragraph's line, as CommonMark has it."""
    return bool(line[marker.end() :].strip()) and (not marker[2][0].isdigit() or marker[2][:-1] == "1")
