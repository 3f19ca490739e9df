"""The output of the reader in the box: lines of JSON, sections of a document in their order, within bounds."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator

from tools.base.escape_invisible import visible

MOST_SECTIONS = 5_000
MOST_CHARACTERS = 10_000_000
_MARK = 200  # characters: the name of a sheet can have any length
_LINE = 1_000  # characters; longer ones, as paragraphs are, become several
PIECE = 50_000  # characters after which a long table begins a section of its own
ENDS = {signal.SIGPROF, signal.SIGALRM}  # that the time is over

Sections = Iterator[tuple[str, str]]
"""The mark and the text of each section; PICTURE at its end says that there is more to see than to read."""
PICTURE = "\0"


class Refused(Exception):
    """The document cannot be read. The message continues a sentence that names it."""


class OutOfTime(Exception):
    """The reader has used its time."""


def put(**fields: object) -> None:
    """Write a line. At once: the kernel may end the process while it reads what comes next."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def put_sections(sections: Sections) -> str:
    """Write the sections as far as they fit; return what is left out."""
    left = MOST_CHARACTERS
    for number, (mark, text) in enumerate(sections):
        if number >= MOST_SECTIONS or left <= 0:
            return f"everything from {mark} on, because it is longer than can be read"
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # what has been read is written, late or not
        is_picture = text.endswith(PICTURE)
        text = "\n".join(_short_lines(visible(text[:left]).strip("\n")))
        left -= len(text)
        put(mark=visible(mark[:_MARK]), text=text, is_picture=is_picture)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    return "" if left > 0 else "the end, because it is longer than can be read"


def _short_lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        at = 0
        while len(line) - at > _LINE:
            space = line.rfind(" ", at + 1, at + _LINE)
            end = space if space > 0 else at + _LINE
            yield line[at:end]
            at = end + (space > 0)
        yield line[at:]


def in_pieces(mark: str, lines: Iterator[str], unit: str = "row") -> Sections:
    """Yield lines as sections of bounded length: `sheet Sales`, then `sheet Sales, from row 812`."""
    held: list[str] = []
    size, begins = 0, 1
    for number, line in enumerate(lines, start=1):
        if line or (held and held[-1]):  # of empty rows one
            held.append(line)
            size += len(line) + 1
        if size >= PIECE:
            yield mark if begins == 1 else f"{mark}, from {unit} {begins}", "\n".join(held)
            held, size, begins = [], 0, number + 1
    if held or begins == 1:
        yield mark if begins == 1 else f"{mark}, from {unit} {begins}", "\n".join(held)


def table_row(cells: list[str]) -> str:
    """A row of a table in Markdown; empty if all cells are."""
    while cells and not cells[-1]:
        cells.pop()
    return f"| {' | '.join(cells)} |" if cells else ""
