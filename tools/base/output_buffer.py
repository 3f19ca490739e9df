"""A bounded buffer for a process's output: head, end, the last few lines, and counts of the rest."""

from __future__ import annotations

import codecs
from collections import deque

from msgspec import Struct

TAIL_LINES = 12
LINE_CHARACTERS = 400
TEXT_CHARACTERS = 262_144  # more than one result shows: the rest can be read in pages

_NOTE = 80  # room for the sentence that stands where the middle was
_CUT = 4_096  # characters of a line that may go with its other part
_PIECES, _CHARACTERS = 256, 65_536  # that may wait until they are put to head and end


class OutputSlice(Struct, frozen=True):
    """Some of an output, without a gap: `text` begins at `start` of `total`. `more`: what follows is kept, too."""

    start: int
    text: str
    total: int
    more: bool


class OutputBuffer:
    """Bytes in, in any slicing; at most `most` characters out. Memory does not grow with what is fed."""

    def __init__(self, most: int = TEXT_CHARACTERS) -> None:
        self.bytes = 0
        self._head_room = most // 2
        self._end_room = most - most // 2
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._characters = 0
        self._head = ""
        self._end = ""
        self._waiting: list[str] = []
        self._waits = 0  # characters of those
        self._newlines = 0
        self._finished: deque[str] = deque(maxlen=TAIL_LINES)
        self._open = ""

    def feed(self, block: bytes, *, final: bool = False) -> None:
        """Take what was written next. `final` decodes a character that was cut off."""
        self.bytes += len(block)
        text = self._decoder.decode(block, final)
        if not text:
            return
        self._characters += len(text)
        self._waiting.append(text)
        self._waits += len(text)
        if self._waits > _CHARACTERS or len(self._waiting) > _PIECES:
            self._put_by()
        self._newlines += text.count("\n")
        # One split more than the ring holds: whatever is left unsplit in front falls out of it.
        *finished, rest = text.rsplit("\n", TAIL_LINES + 1)
        if finished:
            self._finished.append(_shortened(self._open + finished[0]))
            self._finished.extend(_shortened(line) for line in finished[1:])
            self._open = ""
        self._open = (self._open + rest)[-LINE_CHARACTERS - 1 :]

    def _put_by(self) -> None:
        """Flush pending text into head and end; in large batches, because each flush copies the whole end."""
        later = "".join(self._waiting)
        self._waiting, self._waits = [], 0
        if (room := self._head_room - len(self._head)) > 0:
            self._head, later = self._head + later[:room], later[room:]
        self._end = (self._end + later)[-self._end_room :]

    @property
    def lines(self) -> int:
        """Lines so far, an unfinished one included."""
        return self._newlines + bool(self._open)

    @property
    def tail(self) -> tuple[str, ...]:
        """The last 12 lines at most, as a terminal would show them."""
        shown = [*self._finished, _shortened(self._open)] if self._open else list(self._finished)
        return tuple(_as_on_a_terminal(line) for line in shown[-TAIL_LINES:])

    def part(self, offset: int, size: int) -> OutputSlice:
        """At most `size` characters from the character `offset` on; what is not kept is skipped."""
        self._put_by()
        end_at = self._characters - len(self._end)
        start = min(offset, self._characters)
        if start >= len(self._head):
            start = max(start, end_at)
            text = self._end[start - end_at : start - end_at + size]
        else:
            text = self._head[start : start + size]
            if end_at == len(self._head):
                text += self._end[: size - len(text)]
        behind = start + len(text)
        return OutputSlice(start, _printable(text), self._characters, len(text) == size and behind < self._characters)

    def text(self) -> str:
        """All of it if it is short enough; else head and end, and how many characters are missing between them."""
        self._put_by()
        left_out = self._characters - len(self._head) - len(self._end)
        if left_out == 0:
            return _printable(self._head + self._end)
        head, end = self._whole_lines()
        note = f"\n[... {self._characters - len(head) - len(end):,} characters left out ...]\n"
        return _printable(head + note + end)

    def _whole_lines(self) -> tuple[str, str]:
        """Head and end without their cut line, unless it is long: half a secret is not recognised as one."""
        head, end = self._head, self._end[_NOTE:]
        last, first = head.rfind("\n", max(0, len(head) - _CUT)), end.find("\n", 0, _CUT)
        return head[:last] if last >= 0 else head, end[first + 1 :]


def _shortened(line: str) -> str:
    """Keep the end of a line: progress bars change there."""
    return line if len(line) <= LINE_CHARACTERS else "…" + line[1 - LINE_CHARACTERS :]


def _as_on_a_terminal(line: str) -> str:
    return _printable(line.rstrip("\r").rsplit("\r", 1)[-1])


def _printable(text: str) -> str:
    # Not every database can store NUL.
    return text.replace("\0", "\ufffd")
