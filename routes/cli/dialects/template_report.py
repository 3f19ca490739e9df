"""`dragoman dialects --template`: the calls of a model, as its template writes them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from app.models.serving.refusals import UnfitFile
from app.models.serving.template_files import templates_in
from app.models.templates.reading import TemplateReading, read_template


def print_template(path: Path) -> int:
    """Print what was derived from the template. 2 if the file has none, 1 if no grammar reads its calls."""
    try:
        templates = templates_in(path)
    except UnfitFile as error:
        print(error, file=sys.stderr)
        return 2
    reading = read_template(templates.chat, templates.response, always=True)
    for line in _lines(reading):
        print(line)
    if reading.known or reading.grammar:
        return 0
    print(f"{path}: no grammar: {reading.reason}.", file=sys.stderr)
    return 1


def _lines(reading: TemplateReading) -> Iterator[str]:
    if reading.known:
        yield f"table:      its calls are read as {reading.known}; nothing else is needed"
    elif reading.grammar:
        yield "table:      no dialect reads its calls; the grammar below is used beside the table"
    if reading.prompt_suffix:
        yield f"prompt:     ends with {reading.prompt_suffix[-60:]!r}"
    if (grammar := reading.grammar) is None:
        if reading.known:
            yield f"derived:    nothing: {reading.reason}"
        return
    yield f"arguments:  {grammar.form}"
    yield f"call:       begins with {grammar.begin!r}" if grammar.begin else "call:       begins with no mark"
    yield f"            ends with {grammar.end!r}" if grammar.end else "            ends with no mark"
    if grammar.outer_begin or grammar.outer_end:
        yield f"all calls:  stand between {grammar.outer_begin!r} and {grammar.outer_end!r}"
    yield f"separator:  {grammar.separator!r} between calls" if grammar.separator else "separator:  none, or space"
    yield "round trip: the calls that the template wrote are read back the same, in pieces of 1, 5 and all characters"
