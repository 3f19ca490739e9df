"""The log of a server: the last lines of its stderr, its log messages and connection events."""

from __future__ import annotations

import codecs
import time
from collections import deque

from tools.base.escape_invisible import visible

LINES = 200
LINE_CHARACTERS = 2_000


class ServerLog:
    """A ring buffer of lines. Bytes of stderr come in any slicing."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES)
        self._stderr: deque[str] = deque(maxlen=LINES)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._open = ""

    def add(self, text: str) -> None:
        """Add a line of the host, or of the server's log notifications."""
        stamp = time.strftime("%H:%M:%S", time.gmtime())
        self._lines.append(f"{stamp} {visible(text[:LINE_CHARACTERS])}")

    def begin(self) -> None:
        """Start a new process's output."""
        self._stderr.clear()
        self._open = ""
        self._decoder.reset()

    def feed(self, block: bytes) -> None:
        # Of a line that never ends only the beginning is kept.
        *lines, rest = (self._open + self._decoder.decode(block)).split("\n")
        for text in lines[-LINES:]:
            shown = visible(text[:LINE_CHARACTERS]).rstrip()
            self._stderr.append(shown)
            self._lines.append(f"stderr: {shown}")
        self._open = rest[:LINE_CHARACTERS]

    def tail(self, count: int = 12) -> tuple[str, ...]:
        """The last lines of stderr."""
        lines = [*self._stderr, visible(self._open)] if self._open else list(self._stderr)
        return tuple(lines[-count:])

    def lines(self) -> list[str]:
        return [*self._lines, *([f"stderr: {visible(self._open)}"] if self._open else [])]
