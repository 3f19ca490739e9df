"""Structured output where the model's server has none: the schema goes into the prompt, and the text is checked.

`response_format` is that of chat completions: `{"type": "json_object"}`, or `{"type": "json_schema", "json_schema":
{"schema": ...}}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from typing import Any

from parsing.fitting import fit
from parsing.literals import Literals, loads
from tools.base.patterns import lazy_pattern
from tools.base.schemas import argument_error

MOST_GUESSED = 1000  # characters: the time grows with their square, to seconds for 8,000
MOST_TRIES = 16  # places in a text where the JSON may begin
ONLY = "Answer with one JSON {kind} and nothing else: no introduction, no explanation, no block of code."
FITTING = "It must fit this JSON Schema:"
NOTHING = object()
_FENCE = lazy_pattern(r"```[^\n`]{0,40}\n(?P<inside>.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_START = lazy_pattern(r"[{\[]")

ResponseFormat = Mapping[str, Any]


def is_structured(response_format: object) -> bool:
    """Return whether this asks for JSON."""
    return isinstance(response_format, Mapping) and response_format.get("type") in ("json_object", "json_schema")


def schema_of(response_format: ResponseFormat) -> dict[str, Any]:
    """Return the schema that the answer must fit; of any object if none is given."""
    given = response_format.get("json_schema")
    schema = given.get("schema") if isinstance(given, Mapping) else None
    return schema if isinstance(schema, dict) else {"type": "object"}


def instruction(response_format: object) -> str:
    """Return the sentences that ask a model for this format; empty if it is plain text."""
    if not isinstance(response_format, Mapping) or not is_structured(response_format):
        return ""
    schema = schema_of(response_format)
    rule = ONLY.format(kind="object" if schema.get("type", "object") == "object" else "value")
    if schema == {"type": "object"}:
        return rule
    given = response_format["json_schema"].get("description")
    about = [f"It is {given}"] if isinstance(given, str) and given.strip() else []
    return "\n".join([rule, *about, FITTING, json.dumps(schema, ensure_ascii=False)])


def json_of(text: str, response_format: object) -> str | None:
    """Return the JSON in the text that fits the format, repaired if it is malformed; None if there is none."""
    if not isinstance(response_format, Mapping) or not is_structured(response_format):
        return None
    schema = schema_of(response_format)
    for candidate in _candidates(text):
        value = strict_value(candidate)
        if value is not NOTHING and _fits(value, schema):
            return candidate
    begun = [candidate for candidate in _candidates(text) if candidate[:1] in ("{", "[")]
    short = [candidate for candidate in begun if len(candidate) <= MOST_GUESSED][:1]
    for value in chain(map(repaired_value, begun), map(guessed_value, short)):
        fitted = fit(value, schema)[0] if isinstance(value, dict) else value
        if fitted is not NOTHING and _fits(fitted, schema):
            return json.dumps(fitted, ensure_ascii=False)
    return None


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    return argument_error("the answer", schema, value) is None


def _candidates(text: str) -> Iterator[str]:
    """Yield the whole text, the blocks of code in it, and what begins with each of its first brackets."""
    yield text.strip()
    for block in islice(_FENCE.finditer(text), MOST_TRIES):
        yield block["inside"].strip()
    for start in islice(_START.finditer(text), MOST_TRIES):
        yield _whole_value(text[start.start() :])


def _whole_value(text: str) -> str:
    """Return the JSON value that the text begins with, or else all of it."""
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return text.strip()
    return text[:end]


def strict_value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return NOTHING


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def repaired_value(text: str) -> Any:
    """Return the value that text of JSON that is nearly right begins with; NOTHING for other text."""
    if text[:1] not in ("{", "["):
        return NOTHING
    with suppress(ValueError, RecursionError):
        return loads(text, ended=True)
    with suppress(ValueError, RecursionError):
        return Literals(text, ended=True).value()
    return NOTHING


def guessed_value(text: str) -> Any:
    """Return the value of short JSON with comments or without commas."""
    from json_repair import loads as guess  # rarely needed

    try:
        return guess(text, skip_json_loads=True)
    except (ValueError, RecursionError):
        return NOTHING
