"""The dialects as docs/dialects.md has them: a table, and an example of each from its fixture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

from parsing.dialects import DIALECTS, FAMILIES, FENCED, TOOL_ELEMENT, listed
from parsing.matching import compiled
from tests import ROOT

FIXTURES = ROOT / "fixtures/dialects"


@cache
def examples() -> dict[str, str]:
    """One call in each dialect."""
    files = [*sorted(FIXTURES.glob("policies/*.jsonl")), FIXTURES / "cases.jsonl"]
    cases = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    texts = {case["dialect"]: case["text"] for case in cases if case["id"].partition("/")[2].startswith("single")}
    return texts | {FENCED.name: "```list_files\nsrc\n```"}


def opener(dialect: str) -> str:
    """The part of the example that a row of this dialect matches: nothing where only a look-ahead does."""
    if dialect in (FENCED.name, TOOL_ELEMENT.name):
        return examples()[dialect].splitlines()[0]
    rows = [row for row in DIALECTS if dialect in (row.name, *row.members)]
    matches = (compiled(row.opens).search(examples()[dialect]) for row in rows)
    return " ".join(next(match for match in matches if match).group().split())


def dialect_table() -> Iterator[str]:
    """A row for each dialect."""
    yield "| dialect | opener, as in the example | body | models |"
    yield "|---|---|---|---|"
    for name, family, models in listed():
        title = FAMILIES[family]
        yield f"| `{name}` | {_code(opener(name))} | [{title}](#{_anchor(title)}) | {models} |"


def dialect_examples() -> Iterator[str]:
    """A section for each family: its dialects, and a call in each."""
    shown = ""
    for name, family, _ in listed():
        if family != shown:
            shown = family
            yield from (f"### {FAMILIES[family]}", "")
        yield from (f"`{name}`:", "", "````text", *examples()[name].splitlines(), "````", "")


def _code(text: str) -> str:
    if not text:
        return "none"
    text = text.replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _anchor(title: str) -> str:
    return title.lower().replace(",", "").replace(" ", "-")
