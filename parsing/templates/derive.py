"""A grammar for a model that no row knows: derived from the text that its template makes of known calls, and verified.

Each argument form that the text may have gives a row with one of the readers of the table (`parsing.templates.forms`).
The row counts only if it reads every probe back to the same calls, in whatever pieces, and no call out of a quotation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from functools import cached_property

from parsing.dialects import ROWS, Rows
from parsing.framing import Reasoning
from parsing.openers import OPENERS, Openers
from parsing.parser import Parser, gather
from parsing.templates.forms import FORMS
from parsing.templates.outline import MASKS, NAME, Outline
from parsing.templates.probes import TOOLS, Probe

_WHOLE = 1 << 20
PIECES = (_WHOLE, 5, 1)
_LONGEST = 4_000  # characters of a probe
_LONGEST_MARKS = 400  # characters of those of one call
_MOST_MASKS = 5  # in them: the time to match many of them in a row grows with each


_MARKDOWN = re.compile(rf"(?:[-*+>]|#{{1,6}}|\d{{1,9}}[.)])\s*(?:{NAME}|\Z)")


class Underivable(ValueError):
    """No row can be derived. The message says why."""


@dataclass(frozen=True, eq=False)
class TemplateGrammar:
    """The grammar of a template's calls: `rows` read them beside the table.

    `begin` and `end` are the marks of one call, `outer_begin` and `outer_end` those of all calls of a reply, and
    `separator` stands between two; NAME stands for the tool's name in them, and `...` for what changes otherwise.
    `form` says how the arguments are written. `probes` are what it was derived from.
    """

    probes: tuple[Probe, ...]
    form: str
    begin: str
    end: str
    outer_begin: str
    outer_end: str
    separator: str
    rows: Rows

    @cached_property
    def openers(self) -> Openers:
        """The tables of all dialects with these rows before the others."""
        return Openers(joined(self.rows, ROWS))


def openers_with(grammar: TemplateGrammar | None) -> Openers:
    """The tables of all dialects, and of this grammar if there is one."""
    return grammar.openers if grammar else OPENERS


def joined(first: Rows, second: Rows) -> Rows:
    """The rows of both sets, at their places."""
    return Rows(**{each.name: getattr(first, each.name) + getattr(second, each.name) for each in fields(Rows)})


def dialect_of(probes: Sequence[Probe], openers: Openers = OPENERS) -> str:
    """The dialect as which these rows read all probes right; "" if they do not. Raises Underivable."""
    _check(probes)
    names = [_dialect(probe, openers) for probe in probes]
    return "" if not all(names) else names[0]


def _dialect(probe: Probe, openers: Openers) -> str:
    found = ""
    for size in PIECES:
        parser = Parser(TOOLS, openers=openers, fences=False)
        events = []
        for at in range(0, len(probe.text), size):
            events += parser.feed(probe.text[at : at + size])
        parsed = gather([*events, *parser.close()])
        calls = tuple((call.name, call.arguments) for call in parsed.calls)
        if calls != probe.calls or parsed.rejected or parsed.content.strip():
            return ""
        found = parsed.calls[0].dialect
    return found


def _check(probes: Sequence[Probe]) -> None:
    if any(len(probe.text) > _LONGEST for probe in probes):
        raise Underivable(f"the text of a call is longer than {_LONGEST:,} characters")
    if any(mask in probe.text for probe in probes for mask in MASKS):
        raise Underivable("the text of a call has characters for private use, which nothing else may stand for")


def _check_marks(marks: Outline) -> None:
    masked = "".join(astuple(marks))
    if _MARKDOWN.match(marks.opener):
        raise Underivable("a call begins like an item, a heading or a quotation of Markdown")
    if len(masked) > _LONGEST_MARKS:
        raise Underivable(f"the marks of a call are longer than {_LONGEST_MARKS} characters")
    if sum(map(masked.count, MASKS)) > _MOST_MASKS:
        raise Underivable(f"the marks of a call change in more than {_MOST_MASKS} places")


def derive(probes: Sequence[Probe], base: Rows = ROWS) -> TemplateGrammar:
    """The grammar of the calls in these texts. Raises Underivable.

    It is derived from the first, and from the first with two calls if the template writes as many; the others must be
    read as well.
    """
    single, parallel = probes[0], next((probe for probe in probes if len(probe.calls) > 1), None)
    _check(probes)
    tried = []
    for form in FORMS:
        for marks, rows in form.derive(single, parallel):
            _check_marks(marks)
            _, begun = OPENERS.not_calls.match_at(marks.opener, 0, last=True)
            if begun and isinstance(begun.kind, Reasoning):
                raise Underivable("a call begins with a mark of reasoning")
            openers = Openers(joined(rows, base))
            if dialect_of(probes, openers) and not _runs_quoted(single, openers):
                return _grammar(probes, form.name, marks, rows)
            tried.append(form.name)
    if tried:
        raise Underivable(f"the calls look like {tried[0]}, but are not read back as they were written")
    raise Underivable("the names and the arguments are in none of the known forms")


def _runs_quoted(probe: Probe, openers: Openers) -> bool:
    """Return whether a call in a fence that quotes it would run."""
    parser = Parser(TOOLS, openers=openers, fences=False)
    return bool(gather([*parser.feed(f"So:\n`````text\n{probe.text}\n`````\n"), *parser.close()]).calls)


def _grammar(probes: Sequence[Probe], form: str, marks: Outline, rows: Rows) -> TemplateGrammar:
    return TemplateGrammar(
        tuple(probes),
        form,
        begin=_readable(marks.item_open or marks.outer_open),
        end=_readable(marks.item_close or marks.outer_close),
        outer_begin=_readable(marks.outer_open) if marks.item_open else "",
        outer_end=_readable(marks.outer_close) if marks.item_open else "",
        separator=_readable(marks.separator),
        rows=rows,
    )


def _readable(masked: str) -> str:
    for mask in MASKS:
        masked = masked.replace(mask, "NAME" if mask == NAME else "...")
    return masked
