"""The dialects: a row each. To add one, add a row next to its relatives and a fixture.

Where a row may open depends on the table it stands in: `marked` anywhere outside code, `rest` where no marked row can,
`headers` at the beginning of a message, `lines` at the beginning of a line, `whole` at the beginning of a message that
holds nothing else, `last` where nothing else has begun: what opens there is answered, not run. The characters at which
each table is tried are derived from its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parsing.dialects import json_rows, mixed_rows, tag_rows, word_rows
from parsing.dialects.row import FAMILIES, Dialect
from parsing.readers import bodies as body


@dataclass(frozen=True)
class Rows:
    """A set of dialects, by the places where they may open."""

    marked: tuple[Dialect, ...]
    rest: tuple[Dialect, ...]
    headers: tuple[Dialect, ...]
    lines: tuple[Dialect, ...]
    whole: tuple[Dialect, ...]
    last: tuple[Dialect, ...] = ()


ROWS = Rows(
    marked=(*mixed_rows.MARKED, *json_rows.MARKED, *tag_rows.MARKED),
    rest=(*mixed_rows.REST, *json_rows.REST, *tag_rows.REST),
    headers=tag_rows.HEADERS,
    lines=(*word_rows.LINES, *tag_rows.LINES),
    whole=word_rows.WHOLE,
    last=(mixed_rows.NAMELESS, mixed_rows.UNTAUGHT),
)
# Their openers are made of the tools that are offered.
TOOL_ELEMENT = Dialect("tool_name_tag", "adhoc_tag", "Cline, Roo, Kilo prompts", "", body.tool_element)
FENCED = Dialect("fence_tool_tag", "fenced", "any model that is taught it", "", body.tool_element)

DIALECTS = (*ROWS.marked, *ROWS.rest, TOOL_ELEMENT, *ROWS.headers, *ROWS.lines, FENCED, *ROWS.whole)


def listed() -> Iterator[tuple[str, str, str]]:
    """Name, family and models of every dialect, family by family."""
    named: dict[str, tuple[str, str]] = {}
    for row in DIALECTS:
        for name in (row.name, *row.members):
            named.setdefault(name, (row.family, row.models))
    for name, (family, models) in sorted(named.items(), key=lambda item: (item[1][0], item[0])):
        yield name, family, models


__all__ = ["DIALECTS", "FAMILIES", "FENCED", "ROWS", "TOOL_ELEMENT", "Dialect", "Rows", "listed"]
