"""Each documented dialect held out of the table: derived from its template, and measured on its cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from app.models.templates.reading import probes_of, writers
from app.models.templates.renderer import TemplateRefused
from app.models.templates.sandbox import Renderer, refusal
from parsing.dialects import ROWS, Rows
from parsing.openers import Openers
from parsing.templates.derive import TemplateGrammar, Underivable, derive, joined
from tests.support.parsing.cases import BY_DIALECT, FIXTURES, as_fields, expected_fields, parsed_case

TEMPLATES = {file.stem: file for file in sorted((FIXTURES / "templates").glob("*.jinja"))}


@dataclass(frozen=True)
class Measured:
    """A dialect without its rows: the grammar that was derived, and its cases by id, whether they are right."""

    dialect: str
    grammar: TemplateGrammar | None
    right: dict[str, bool]
    extra: tuple[str, ...]  # cases with a call that they have not


def rows_without(dialect: str) -> Rows:
    """The table without each row that reads this dialect."""
    return Rows(
        **{
            each.name: tuple(row for row in getattr(ROWS, each.name) if dialect not in (row.name, *row.members))
            for each in fields(Rows)
        }
    )


class _Known:
    """A template that needs no process of its own, refused in the same words."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def render(self, **variables: Any) -> str:
        try:
            return self._renderer.render(**variables)
        except TemplateError as error:
            raise TemplateRefused(refusal(error)) from error


def derived(file: Path, base: Rows) -> TemplateGrammar | None:
    """The grammar of a template, for a table with these rows."""
    for write, _ in writers(_Known(Renderer(file.read_text("utf-8"))), ""):
        try:
            return derive(probes_of(write), base)
        except Underivable:
            continue
    return None


@cache
def measured(dialect: str) -> Measured:
    base = rows_without(dialect)
    grammar = derived(TEMPLATES[dialect], base)
    openers = Openers(joined(grammar.rows, base) if grammar else base)
    right: dict[str, bool] = {}
    extra = []
    for case in BY_DIALECT[dialect]:
        wanted = expected_fields(case)
        found = [as_fields(parsed_case(case, pieces, openers)) for pieces in slicings(case["text"])]
        right[case["id"]] = all(each == wanted for each in found)
        if any(call not in wanted["calls"] for each in found for call in each["calls"]):
            extra.append(case["id"])
    return Measured(dialect, grammar, right, tuple(extra))


def slicings(text: str) -> Iterator[list[str]]:
    """A character at a time, five, and all at once."""
    for size in (1, 5, max(1, len(text))):
        yield [text[start:end] for start, end in pairwise([*range(0, len(text), size), len(text)])]


def held_out_table() -> Iterator[str]:
    """What was derived for each dialect, in Markdown."""
    found = [measured(dialect) for dialect in TEMPLATES]
    cases = sum(len(each.right) for each in found)
    right = sum(sum(each.right.values()) for each in found)
    derived_ones = sum(each.grammar is not None for each in found)
    share = f"{right} of their {cases} cases are right ({right / cases:.1%})"
    yield f"Of {len(found)} dialects {derived_ones} are derived; {share}."
    yield ""
    yield "| dialect held out | argument form that was found | cases right |"
    yield "|---|---|---|"
    for each in found:
        form = each.grammar.form if each.grammar else "nothing"
        yield f"| `{each.dialect}` | {form} | {sum(each.right.values())} of {len(each.right)} |"
