"""Values to the types that a schema wants: at every depth, once, told, and within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from parsing import parse
from parsing.fitting import MAX_DEPTH, MAX_REPAIRS, MAX_VALUES, fit

SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {
        "tree": {"properties": {"size": {"type": "integer"}, "child": {"$ref": "#/$defs/tree"}}},
        "many": {"anyOf": [{"$ref": "#/$defs/many"}, {"$ref": "#/$defs/many"}, {"type": "integer"}]},
    },
    "properties": {
        "days": {"type": "integer"},
        "name": {"type": "string"},
        "on": {"type": ["boolean", "null"]},
        "tags": {"type": "array", "items": {"type": "integer"}},
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
        "tree": {"$ref": "#/$defs/tree"},
        "many": {"$ref": "#/$defs/many"},
        "either": {"anyOf": [{"type": "object", "properties": {"x": {"type": "integer"}}}, {"type": "null"}]},
        "text_or_number": {"type": ["string", "integer"]},
        "level": {"enum": [1, 2, "high"]},
        "odd": 3,
    },
}


@pytest.mark.parametrize(
    ("key", "value", "fitted"),
    [
        ("days", "2", 2), ("days", "two", "two"), ("days", 2.5, 2.5), ("name", "2", "2"), ("name", 2, 2),
        ("on", "true", True), ("on", "null", None), ("tags", "[1, 2]", [1, 2]), ("tags", ["1", 2], [1, 2]),
        ("tags", '["1"]', [1]), ("tags", "", []), ("map", {"a": "1.5"}, {"a": 1.5}), ("map", "", {}),
        ("tree", {"size": "1", "child": {"size": "2"}}, {"size": 1, "child": {"size": 2}}), ("many", "7", 7),
        ("either", {"x": "1"}, {"x": 1}), ("text_or_number", "7", "7"), ("level", "2", 2), ("level", "high", "high"),
        ("level", "3", "3"), ("odd", "3", "3"), ("unknown", "3", "3"), ("unknown", {"days": "3"}, {"days": "3"}),
    ],
)  # fmt: skip
def test_a_value_becomes_what_the_schema_wants(key: str, value: Any, fitted: Any) -> None:
    found, repairs = fit({key: value}, SCHEMA)
    assert (found, type(found[key])) == ({key: fitted}, type(fitted))
    assert bool(repairs) == (value != fitted)
    assert fit(found, SCHEMA) == (found, ())  # once is enough


def test_a_repair_is_told_with_the_place_of_its_value() -> None:
    _, repairs = fit({"days": "2", "tree": {"child": {"size": "3"}}, "tags": ["1"], "on": "null"}, SCHEMA)
    assert repairs == (
        '"days" was text and is read as the integer 2.',
        '"tree.child.size" was text and is read as the integer 3.',
        '"tags[0]" was text and is read as the integer 1.',
        '"on" was text and is read as null.',
    )


def test_values_that_fit_are_handed_on_as_they_are() -> None:
    arguments = {"name": "x", "days": 2, "tags": [1, 2], "map": {"a": 1.5}}
    assert fit(arguments, SCHEMA) == (arguments, ())
    assert fit(arguments, SCHEMA)[0] is arguments


def test_a_walk_is_bounded_in_depth_values_and_sentences() -> None:
    deep: dict[str, Any] = {"size": "1"}
    for _ in range(10 * MAX_DEPTH):
        deep = {"child": deep}
    assert fit({"tree": deep}, SCHEMA) == ({"tree": deep}, ())
    fitted, repairs = fit({"tags": ["1"] * (2 * MAX_VALUES)}, SCHEMA)
    assert 0 < fitted["tags"].count(1) <= MAX_VALUES and len(repairs) == MAX_REPAIRS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('<tool_call>{"name": "f", "arguments": {"days": "2"}}</tool_call>', True),
        ('<tool_call>{"name": "f", "arguments": {"days": 2}}</tool_call>', False),
        ("<tool_call><function=f><parameter=days>2</parameter></function></tool_call>", False),
    ],
)
def test_a_call_tells_its_repairs_where_the_dialect_has_types(text: str, told: bool) -> None:
    [call] = parse(text, {"f": SCHEMA}).calls
    assert call.arguments == {"days": 2}
    assert bool(call.repairs) == told
