"""A bounded buffer for a process's output: head, end, the last few lines, and counts of the rest.

It is kept twice: as it was written, for the log, and as a screen shows it, for model and people.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

from msgspec import Struct

from tools.base.screen import Screen, Window

TAIL_LINES = 12
LINE_CHARACTERS = 400
TEXT_CHARACTERS = 262_144  # more than one result shows: the rest can be read in pages

_NOTE = 80  # room for the sentence that stands where the middle was
_CUT = 4_096  # characters of a line that may go with its other part
_PIECES, _CHARACTERS = 256, 65_536  # that may wait until they are put to head and end


class OutputSlice(Struct, frozen=True):
    """Some of an output, without a gap: `text` begins at `start` of `total`. `more`: what follows is kept, too.

    `missing` is the number of lines before it that are not kept.
    """

    start: int
    text: str
    total: int
    more: bool
    missing: int = 0


def lines_of(text: str) -> int:
    """An unfinished one included."""
    return text.count("\n") + (not text.endswith("\n") if text else 0)


class _Ends:
    """Head and end of a text, at most `most` characters together."""

    def __init__(self, most: int) -> None:
        self.characters = 0
        self.newlines = 0
        self.head = ""
        self.end = ""
        self._head_room = most // 2
        self._end_room = most - most // 2
        self._waiting: list[str] = []
        self._waits = 0  # characters of those

    def add(self, text: str) -> None:
        self.characters += len(text)
        self.newlines += text.count("\n")
        self._waiting.append(text)
        self._waits += len(text)
        if self._waits > _CHARACTERS or len(self._waiting) > _PIECES:
            self.put_by()

    def put_by(self) -> None:
        """Flush pending text into head and end; in large batches, because each flush copies the whole end."""
        if not self._waiting:
            return
        later = "".join(self._waiting)
        self._waiting, self._waits = [], 0
        if (room := self._head_room - len(self.head)) > 0:
            self.head, later = self.head + later[:room], later[room:]
        self.end = (self.end + later)[-self._end_room :]

    def shortened(self, more: str) -> str:
        """This text and `more`, if that is short enough; else head and end, and how much is missing between them."""
        self.put_by()
        characters, end = self.characters + len(more), (self.end + more)[-self._end_room :]
        if characters <= self._head_room + self._end_room:
            return self.head + self.end + more
        head = (self.head + more)[: self._head_room]
        head, end = _whole_lines(head, end[_NOTE:])
        lines = self.newlines + more.count("\n") - head.count("\n") - end.count("\n") - 1  # that of the head's last
        missing = f"{lines:,} lines, " if lines > 0 else ""
        return f"{head}\n[... {missing}{characters - len(head) - len(end):,} characters left out ...]\n{end}"

    @property
    def missing_lines(self) -> int:
        """Lines of which nothing is kept. One that is cut counts as a line of its part."""
        unfinished = not self.end.endswith("\n")
        return max(0, self.newlines + unfinished - lines_of(self.head) - lines_of(self.end))


class OutputBuffer:
    """Bytes in, in any slicing; at most `most` characters out. Memory does not grow with what is fed."""

    def __init__(self, most: int = TEXT_CHARACTERS, window: Window | None = None) -> None:
        self.bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._written = _Ends(most)
        self._left = _Ends(most)
        self._screen = Screen(self._left.add, window)

    def feed(self, block: bytes, *, final: bool = False) -> None:
        """Take what was written next. `final` decodes a character that was cut off."""
        self.bytes += len(block)
        text = self._decoder.decode(block, final)
        if text:
            self._written.add(text)
            self._screen.feed(text)

    def resize(self, window: Window) -> None:
        """Take the new size of the terminal, and mark where it changed: whoever replays what was written needs it.

        The mark is the sequence by which a program would change the size itself (XTWINOPS 8).
        """
        self._screen.resize(window)
        self._written.add(f"\x1b[8;{window.height};{window.width}t")

    @property
    def lines(self) -> int:
        """Lines so far on the screen and above it, an unfinished one included."""
        return self._screen.lines

    @property
    def tail(self) -> tuple[str, ...]:
        """The last 12 lines at most, as a terminal shows them, each with its own colours."""
        return tuple(self._painted(text, styles) for text, styles in self._screen.tail(TAIL_LINES))

    def redacted_tail(self, redact: Callable[[str], str]) -> list[str]:
        """The same without secrets, which are looked for before a colour or a cut can part them."""
        lines = list[str]()
        for text, styles in self._screen.tail(TAIL_LINES):
            redacted = redact(text)
            lines.append(self._painted(redacted, styles if redacted == text else "\0" * len(redacted)))
        return lines

    @property
    def is_coloured(self) -> bool:
        """Return True if the tail has colours, which `text` has not."""
        return any(styles.strip("\0") for _, styles in self._screen.tail(TAIL_LINES))

    @property
    def is_drawn(self) -> bool:
        """Return True once the program draws on the whole screen, rather than writing lines."""
        return self._screen.is_drawn

    @property
    def asks(self) -> bool:
        return self._screen.asks

    def part(self, offset: int, size: int) -> OutputSlice:
        """At most `size` characters, as they were written, from the character `offset` on; what is not kept is
        skipped."""
        written = self._written
        written.put_by()
        end_at = written.characters - len(written.end)
        start, missing = min(offset, written.characters), 0
        if start >= len(written.head):
            if start < end_at:
                start, missing = end_at, written.missing_lines
            text = written.end[start - end_at : start - end_at + size]
        else:
            text = written.head[start : start + size]
            if end_at == len(written.head):
                text += written.end[: size - len(text)]
        behind = start + len(text)
        return OutputSlice(
            start, _printable(text), written.characters, len(text) == size and behind < written.characters, missing
        )

    def text(self) -> str:
        """All of it as a screen shows it, if it is short enough; else head and end, and how much is missing."""
        return self._left.shortened(self._screen.text())

    def written(self) -> str:
        """The same as it was written."""
        return _printable(self._written.shortened(""))

    def _painted(self, text: str, styles: str) -> str:
        """Keep the end of a line: it changes there."""
        if len(text) <= LINE_CHARACTERS:
            return self._screen.painted(text, styles)
        kept = 1 - LINE_CHARACTERS
        return "…" + self._screen.painted(text[kept:], styles[kept:])


def _whole_lines(head: str, end: str) -> tuple[str, str]:
    """Head and end without their cut line, unless it is long: half a secret is not recognised as one."""
    last, first = head.rfind("\n", max(0, len(head) - _CUT)), end.find("\n", 0, _CUT)
    return head[:last] if last >= 0 else head, end[first + 1 :]


def _printable(text: str) -> str:
    # Not every database can store NUL.
    return text.replace("\0", "\ufffd")
