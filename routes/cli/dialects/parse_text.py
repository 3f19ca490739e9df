"""`dragoman parse` and `dragoman dialects`: the parser on its own, for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parsing import BadCall, Call, CallDelta, CallOpened, ParseEvent, Parser, Reclassified, Text, Thought
from parsing.dialects import listed

PIECE = 4096
_KINDS: dict[type[ParseEvent], str] = {
    Text: "text",
    Thought: "thought",
    CallOpened: "opened",
    CallDelta: "delta",
    Call: "call",
    BadCall: "rejected",
    Reclassified: "reclassified",
}


def parse_stdin(tools_file: Path | None, fences: bool) -> int:
    """Read a model's reply on standard input; write its events, a JSON object a line. 2 if the tools are unreadable."""
    try:
        tools = tools_in(tools_file) if tools_file else {}
    except (OSError, ValueError) as error:
        print(f"{tools_file} has no tools: {error}. {_FORM}", file=sys.stderr)
        return 2
    parser = Parser(tools, fences=fences)
    while piece := sys.stdin.read(PIECE):
        _print(parser.feed(piece))
    _print(parser.close())
    return 0


_FORM = 'Write {"name": {...JSON Schema of its parameters...}}, or a list of {"name": ..., "parameters": ...}.'


def tools_in(path: Path) -> dict[str, dict[str, Any]]:
    """The tools of a JSON file: schemas by name, or a list of tools as a model server is sent them.

    Raises OSError and ValueError.
    """
    value = json.loads(path.read_text("utf-8"))
    if isinstance(value, dict) and all(isinstance(schema, dict) for schema in value.values()):
        return value
    if not isinstance(value, list):
        raise ValueError("it is neither an object nor a list")
    rows = [row.get("function", row) if isinstance(row, dict) else {} for row in value]
    if not all(isinstance(row.get("name"), str) for row in rows):
        raise ValueError("a tool has no name")
    return {row["name"]: row.get("parameters") or row.get("inputSchema") or {} for row in rows}


def _print(events: list[ParseEvent]) -> None:
    for event in events:
        print(json.dumps(event_object(event)), flush=True)


def event_object(event: ParseEvent) -> dict[str, Any]:
    """An event as the JSON object of its line."""
    kind = {"type": _KINDS[type(event)]}
    return kind | ({"text": event.text} if isinstance(event, Text | Thought) else asdict(event))


def print_dialects() -> int:
    """Write the table of dialects."""
    print("\n".join(dialect_table()))
    return 0


def dialect_table() -> Iterator[str]:
    """The table of dialects, in Markdown."""
    yield "| dialect | family | models |"
    yield "|---|---|---|"
    for name, family, models in listed():
        yield f"| `{name}` | {family} | {models} |"
