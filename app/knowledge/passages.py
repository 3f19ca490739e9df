"""Passages of a text: some lines in a row, cut where a part of the text ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from tools.base.patterns import lazy_pattern
from tools.extraction.documents import Section

LEAST, MOST = 400, 1_000  # characters: behind the former a passage ends with its part of the text
MOST_TITLE = 120
_HEADING = lazy_pattern(r"#{1,6} +\S")


class Passage(Struct, frozen=True):
    """Lines `first` to `last` of a section, counted from 1. `title` is the heading above."""

    mark: str
    first: int
    last: int
    title: str
    text: str


def passages_of(sections: Iterable[Section]) -> Iterator[Passage]:
    """Yield the passages of all sections; those without a letter or figure are left out."""
    for section in sections:
        yield from (one for one in _cut(section) if any(map(str.isalnum, one.text)))


def _cut(section: Section) -> Iterator[Passage]:
    held, size, first, title = list[str](), 0, 1, ""
    for number, line in enumerate(section.text.split("\n"), start=1):
        heading = line if line.startswith("#") and _HEADING.match(line) else ""
        if held and (size + len(line) > MOST or (size >= LEAST and (heading or not line.strip()))):
            yield Passage(section.mark, first, number - 1, title, "\n".join(held))
            held, size = [], 0
        if heading:
            title = heading.strip("# \r")[:MOST_TITLE]
        if not held:
            first = number
        *pieces, line = (line[at : at + MOST] for at in range(0, len(line) or 1, MOST))
        yield from (Passage(section.mark, number, number, title, piece) for piece in pieces)
        if held or line.strip():
            held.append(line)
            size += len(line) + 1
    if held:
        yield Passage(section.mark, first, first + len(held) - 1, title, "\n".join(held))
