"""Argument forms: a row for each, from the marks round its payloads to a row of dialects with the reader that fits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from parsing.dialects import Dialect, Rows
from parsing.dialects.row import Body
from parsing.grammar import CALL, JSON, OBJECT, S
from parsing.matching import first_characters
from parsing.readers import bodies as body
from parsing.readers.json_calls import JsonCalls
from parsing.readers.markup import Framing, Markup
from parsing.shapes import ARGUMENTS, ENVELOPE, NAMES, SINGLE_KEY, Keyed, Shape
from parsing.sink import Reader, Sink
from parsing.templates import masks
from parsing.templates.outline import (
    ID,
    KEY,
    MASKS,
    NAME,
    Outline,
    closer_pattern,
    is_explicit,
    is_special,
    opener_pattern,
    outline,
    pattern,
    tokens,
)
from parsing.templates.probes import Probe

DERIVED = "template"  # the dialect of calls that a derived row reads
_LANGUAGE = re.compile(r"`{3,}(?:json|xml|python|py|text)?\s*\Z")
_NEXT_OBJECT = rf"{S}[;,]?{S}(?=\{{)"
_PYTHON = rf"(?:print\s?\(\s?)?(?:default_api\.)?[^\W\d][\w.:-]{{0,127}}{S}\("
_NEXT_NAME = r"(?P<offered>[^\W\d][\w.:-]{0,127})"
_NO_ROWS = Rows((), (), (), (), ())
Found = tuple[Outline, Rows]
Derivation = Callable[[Probe, Probe | None], Iterator[Found]]


@dataclass(frozen=True)
class Form:
    """A way to write arguments: its name, and the rows for it where the probes have it."""

    name: str
    derive: Derivation


def _placed(row: Dialect, marks: Outline) -> Rows:
    """The set with this row alone, at the place where its opener may stand."""
    opener = marks.opener
    if is_explicit(opener):
        if opener[0] in MASKS or not (opener[0].isalnum() or opener[0] in "`~>"):
            return replace(_NO_ROWS, marked=(row,))
        spaced = replace(row, opens=f" ?{row.opens}")  # the rest of a header whose beginning stands in the prompt
        return replace(_NO_ROWS, lines=(spaced,), headers=(spaced,))
    bare = not opener.strip("[({ ") or opener[0] in MASKS or _LANGUAGE.fullmatch(opener)
    if bare or row.family in ("pythonic", "object_literal"):
        return replace(_NO_ROWS, whole=(row,))
    return replace(_NO_ROWS, lines=(row,))


def _row(marks: Outline, family: str, tail: str, reader: Body, more: str = "") -> Found:
    group = "name" if is_special(marks.opener) else "offered"
    opens, further = opener_pattern(marks, group, tail)
    wrapper = pattern(marks.outer_close) if marks.outer_open and marks.item_open else ""
    more = "|".join(filter(None, (further, more)))
    row = Dialect(DERIVED, family, "", opens, reader, more=more, shuts=closer_pattern(marks), wrapper=wrapper)
    return marks, _placed(row, marks)


def _outline(mask: masks.Mask, single: Probe, parallel: Probe | None) -> Outline | None:
    one, two = mask(single), mask(parallel) if parallel else None
    return outline(one, two or "") if one else None


def _json_body(shape: Shape) -> Body:
    def begin(sink: Sink, groups: object) -> Reader:
        return JsonCalls(sink, shape)

    return begin


def _json(single: Probe, parallel: Probe | None) -> Iterator[Found]:
    shapes: list[Shape] = [ENVELOPE, SINGLE_KEY, *_keyed(single)]
    for shape in shapes:
        marks = _outline(masks.json_values(shape), single, parallel)
        if marks is None:
            continue
        bare = not is_explicit(marks.opener) and (not marks.opener or bool(_LANGUAGE.fullmatch(marks.opener)))
        if bare and shape is ENVELOPE:
            yield _row(marks, "bare_json", JSON, body.bare_json, _NEXT_OBJECT)
        elif not bare:
            tail = JSON if is_special(marks.opener) else CALL
            yield _row(marks, "json_sentinel", tail, _json_body(shape), _NEXT_OBJECT)


def _keyed(probe: Probe) -> Iterator[Shape]:
    """A shape for the keys that stand round the name and the arguments where they are not the usual ones."""
    [(name, arguments)] = probe.calls
    for value in masks.objects(probe.text):
        named = [key for key, each in value.items() if each == name and key not in NAMES]
        filled = [key for key, each in value.items() if each == arguments or key in ARGUMENTS]
        named = named or [key for key, each in value.items() if each == name]
        if named and filled:
            yield Keyed(named[0], filled[0])


def _named_json(single: Probe, parallel: Probe | None) -> Iterator[Found]:
    marks = _outline(masks.named_json, single, parallel)
    if marks is None:
        return
    if NAME in marks.item_open + marks.outer_open:
        yield _row(marks, "header_json", OBJECT, body.named_json)
    elif ID in marks.item_open:  # the id names the tool
        item = marks.item_open.replace(ID, NAME, 1)
        renamed = Outline(marks.outer_open, item, marks.item_close, marks.outer_close, marks.separator)
        yield _row(renamed, "header_json", OBJECT, body.kimi_json)


def _python(single: Probe, parallel: Probe | None) -> Iterator[Found]:
    marks = _outline(masks.python, single, parallel)
    if marks is None:
        return
    if is_explicit(marks.opener):
        yield _row(marks, "pythonic", rf"(?={S}(?:```|\[?{S}{_PYTHON}))", body.python_calls)
    elif single.text.lstrip().startswith("```"):
        row = Dialect(DERIVED, "pythonic", "", rf"(?=```(?:python|py|tool_code){S}{_PYTHON})", body.python_calls)
        yield marks, replace(_NO_ROWS, lines=(row,))
    else:
        yield _row(marks, "pythonic", rf"(?=\[?{S}{_NEXT_NAME}{S}\()", body.bare_python)


def _literal(single: Probe, parallel: Probe | None) -> Iterator[Found]:
    if marks := _outline(masks.literal, single, parallel):
        yield _row(marks, "object_literal", r"(?P<bracket>[\{(])", body.literal)


def _arrow(single: Probe, parallel: Probe | None) -> Iterator[Found]:
    marks = _outline(masks.arrow, single, parallel)
    end = pattern(marks.closers[0]) if marks and marks.closers else ""
    if marks and is_explicit(marks.opener) and len(first_characters(end)) == 1:
        yield _row(marks, "adhoc_tag", OBJECT, body.arrow_until(end))


def _tagged(single: Probe, parallel: Probe | None) -> Iterator[Found]:
    found = masks.parameters(single)
    second = masks.parameters(parallel) if parallel else None
    if found is None:
        return
    masked, unit = found
    marks = outline(masked, second[0] if second else "")
    if marks is None or not marks.closers:
        return
    if KEY in unit.shuts:
        yield from _children(marks, unit)
        return
    markup = _markup(marks, unit)
    if len(first_characters(markup.shuts)) != 1:  # as its reader needs it
        return
    head = unit.opens.partition(KEY)[0].strip()
    begins = rf"(?=(?:{pattern(head) if head else markup.opens}|{markup.ends}))"
    tail = begins if is_explicit(marks.opener) else rf"(?={markup.opens})"
    yield _row(marks, "func_param", tail, body.tagged(markup))


def _markup(marks: Outline, unit: masks.Unit) -> Markup:
    opens, shuts = unit.opens.strip(), unit.shuts.strip()
    framed = unit.opens.endswith("\n") and unit.shuts.startswith("\n")
    ends = _either(_end_of(closer, unit) for closer in marks.closers)
    behind = [*(_rest(closer) for closer in marks.closers), marks.separator, marks.outer_close, marks.item_open]
    item = pattern(marks.item_open, "") if marks.item_open[:1] == shuts[0] else ""
    return Markup(
        opens=pattern(opens),
        shuts=pattern(shuts),
        ends=ends,
        after=_either(_end_of(each, unit) for each in behind),
        lead="\n" if shuts[0].isalnum() else "",
        nests=rf"{item}(?=\s{{0,100}}(?:{pattern(_first(opens), '')}|{ends}))" if item else "",
        framing=Framing.EACH if framed else Framing.PAIR,
    )


def _first(masked: str) -> str:
    """The first mark of a text."""
    return next((token for token in tokens(masked) if not token.isspace()), "")


def _end_of(masked: str, unit: masks.Unit) -> str:
    """The first mark of a text; all of it where the marks of a parameter begin alike."""
    first = _first(masked)
    alike = first and (unit.opens.strip().startswith(first) or unit.shuts.strip().startswith(first))
    return masked if alike else first


def _rest(masked: str) -> str:
    visible = [token for token in tokens(masked) if not token.isspace()]
    return visible[1] if len(visible) > 1 else ""


def _either(texts: Iterator[str]) -> str:
    return "|".join(dict.fromkeys(pattern(text, "") for text in texts if text))


def _children(marks: Outline, unit: masks.Unit) -> Iterator[Found]:
    """The parameters as elements of their own names, in an element of the tool's name or another."""
    end = re.match(r"</([^<>\s]+)\s?>", marks.closers[0])
    if not end or unit.opens.strip() != f"<{KEY}>":
        return
    if end[1] == NAME:
        opens, further = opener_pattern(marks, "offered", r"(?=<)")
        row = Dialect(DERIVED, "adhoc_tag", "", opens, body.tool_element, more=further, shuts=closer_pattern(marks))
        yield marks, replace(_NO_ROWS, rest=(row,))  # any element may begin like it
    else:
        yield _row(marks, "adhoc_tag", r"(?=<)", body.children_until(re.escape(end[1])))


# In the order in which they are tried: what is written between marks of its own goes before what is not.
FORMS: Sequence[Form] = (
    Form("JSON with the name and the arguments", _json),
    Form("the name, then the arguments as JSON", _named_json),
    Form("the name, then an object literal", _literal),
    Form("Python calls", _python),
    Form("an arrow notation", _arrow),
    Form("tags for each parameter", _tagged),
)
