"""Splitting of bytes into lines, in linear time and with a bound on each line."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tools.base.patterns import lazy_pattern

MAX_LINE = 32 * 1024 * 1024  # a text of 10 MB, once more as structured content, and what escaping adds
MAX_ENDLESS = 8 * MAX_LINE  # an endless line: the connection is closed
_ENDS = 4_096

# Where implementations write the id of an answer: right at its beginning, or at its very end.
_FIRST = lazy_pattern(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+|"[^"\\]*")')
_LAST = lazy_pattern(rb',\s*"id"\s*:\s*(\d+|"[^"\\]*")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


class Endless(Exception):
    """A line exceeds MAX_ENDLESS."""

    def __init__(self) -> None:
        super().__init__(f"it was cut off because it wrote a line of more than {MAX_ENDLESS >> 20} MB")


class Oversized(Struct, frozen=True):
    """A line that was too long to keep: its size, head and tail."""

    size: int
    head: bytes
    tail: bytes


class LineSplitter:
    """Splits a stream of bytes into whole lines."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._head = self._tail = b""

    def feed(self, block: bytes) -> Iterator[bytes | Oversized]:
        """The lines that end in this block. Raises Endless."""
        *ended, rest = block.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield self._taken()
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= MAX_LINE:
            if piece:
                self._pieces.append(piece)
            return
        if self._pieces:
            whole = b"".join(self._pieces)
            self._head, self._tail, self._pieces = whole[:_ENDS], whole[-_ENDS:], []
        self._head = self._head or piece[:_ENDS]
        self._tail = (self._tail + piece)[-_ENDS:]
        if self._size > MAX_ENDLESS:
            raise Endless

    def _taken(self) -> bytes | Oversized:
        size, self._size = self._size, 0
        pieces, self._pieces = self._pieces, []
        if size <= MAX_LINE:
            return b"".join(pieces)
        head, tail, self._head, self._tail = self._head, self._tail, b"", b""
        return Oversized(size, head, tail)


def answered_id(head: bytes, tail: bytes) -> str | None:
    """Return the request id of a response that cannot be read as a whole."""
    found = _FIRST.match(head) or _LAST.search(tail)
    return found[1].decode("utf-8", "replace").strip('"') if found else None
