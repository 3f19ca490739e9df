"""Structured output where the server has none: what the model is asked, and the JSON that is found in its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.wire.structured_output import instruction, is_structured, json_of

OBJECT = {"type": "json_object"}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
PERSON = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": SCHEMA}}
LIST = {"type": "json_schema", "json_schema": {"name": "l", "schema": {"type": "array", "items": {"type": "integer"}}}}
ANN = '{"name": "Ann", "age": 7}'


@pytest.mark.parametrize("plain", [None, {}, {"type": "text"}, "json_object", {"type": 1}])
def test_plain_text_needs_nothing(plain: Any) -> None:
    assert not is_structured(plain)
    assert instruction(plain) == ""
    assert json_of(ANN, plain) is None


def test_the_prompt_has_the_schema() -> None:
    assert json.dumps(SCHEMA) in instruction(PERSON)
    assert "JSON object" in instruction(PERSON) and "JSON object" in instruction(OBJECT)
    assert "Schema" not in instruction(OBJECT)
    assert "JSON value" in instruction(LIST)
    described = {"type": "json_schema", "json_schema": {"description": "a person.", "schema": SCHEMA}}
    assert "It is a person." in instruction(described)
    assert instruction({"type": "json_schema", "json_schema": {"name": "any"}}) == instruction(OBJECT)


@pytest.mark.parametrize(
    ("wrote", "asked", "found"),
    [
        (ANN, PERSON, ANN),
        (f"\n {ANN} \n", PERSON, ANN),
        (f"```json\n{ANN}\n```", PERSON, ANN),
        (f"Here it is:\n\n```\n{ANN}\n```\nAnything else?", PERSON, ANN),
        (f"Sure! {ANN} Anything else?", PERSON, ANN),
        (f"Not {{this}}, not {{}}, but {ANN}", PERSON, ANN),
        (f"```json\n{ANN}", PERSON, ANN),
        ("{'name': 'Ann', 'age': 7,}", PERSON, ANN),
        ('{name: "Ann" age: 7}', PERSON, ANN),
        ('{"name": "Ann", "age": 7', PERSON, ANN),
        ('{"name": "Ann", "age": "7"}', PERSON, ANN),
        ('{"name": "Ann", // her name\n "age": 7}', PERSON, ANN),
        ("[1, 2]", LIST, "[1, 2]"),
        ("The list: [1, 2,].", LIST, "[1, 2]"),
        ('{"a": {"b": 1}}', OBJECT, '{"a": {"b": 1}}'),
        ('{"a": "é\\ud83d"}', OBJECT, '{"a": "é\\ud83d"}'),
        # Nothing in it fits.
        ('{"name": "Ann"}', PERSON, None),
        ('{"name": "Ann", "age": 7, "more": 1}', PERSON, None),
        ("I cannot do that.", PERSON, None),
        ("", OBJECT, None),
        ("[1]", OBJECT, None),
        ("7", OBJECT, None),
        ('{"a": NaN}', LIST, None),
        ("{" * 100_000, OBJECT, None),
        ("[" * 5_000, LIST, None),
        # Each would take minutes, if time were not linear.
        ("{" * 60_000, OBJECT, None),
        ('{"' * 30_000, OBJECT, None),
        ("{I think {this} is [it] and so on. " * 1_800, OBJECT, None),
    ],
)
def test_the_json_of_an_answer_is_found_and_repaired(wrote: str, asked: Any, found: str | None) -> None:
    assert json_of(wrote, asked) == found


@given(st.text(alphabet="{}[]\"',: a1\\\n`", max_size=40), st.sampled_from([OBJECT, PERSON, LIST]))
def test_whatever_was_written_the_result_is_json_or_none(wrote: str, asked: Any) -> None:
    found = json_of(wrote, asked)
    assert found is None or isinstance(json.loads(found), list if asked is LIST else dict)
