"""The dialects: a row each. To add one, add a row next to its relatives and a fixture.

Where a row may open depends on the table it stands in: MARKED anywhere outside code, REST where no marked row can,
LINES at the beginning of a line, WHOLE at the beginning of a message that holds nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from parsing.dialects import json_rows, tag_rows, word_rows
from parsing.dialects.row import Dialect
from parsing.readers import bodies as body

MARKED = (*json_rows.MARKED, *tag_rows.MARKED)
REST = (*json_rows.REST, *tag_rows.REST)
LINES = (*word_rows.LINES, *tag_rows.HEADERS)
WHOLE = word_rows.WHOLE
# Their openers are made of the tools that are offered.
TOOL_ELEMENT = Dialect("tool_name_tag", "adhoc_tag", "Cline, Roo, Kilo prompts", "", body.tool_element)
FENCED = Dialect("fence_tool_tag", "fenced", "any model that is taught it", "", body.tool_element)

DIALECTS = (*MARKED, *REST, TOOL_ELEMENT, *LINES, FENCED, *WHOLE)


def listed() -> Iterator[tuple[str, str, str]]:
    """Name, family and models of every dialect, family by family."""
    named: dict[str, tuple[str, str]] = {}
    for row in DIALECTS:
        for name in (row.name, *row.members):
            named.setdefault(name, (row.family, row.models))
    for name, (family, models) in sorted(named.items(), key=lambda item: (item[1][0], item[0])):
        yield name, family, models


__all__ = ["DIALECTS", "FENCED", "LINES", "MARKED", "REST", "TOOL_ELEMENT", "WHOLE", "Dialect", "listed"]
