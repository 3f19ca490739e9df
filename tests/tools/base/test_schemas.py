from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from tools.base.schema_limits import LONGEST_PATTERN, MAX_S, _validator
from tools.base.schemas import argument_error

STRING, INTEGER = {"type": "string"}, {"type": "integer", "minimum": 1, "maximum": 9}


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "arguments", "says"),
    [
        (an_object(a=STRING) | {"required": ["a"]}, {}, "a is missing, wanted string"),
        ({"required": ["a'b"]}, {}, "a'b is missing, wanted a value"),
        (an_object(a=STRING), {"a": [1, 2]}, "a was given [1, 2], wanted string"),
        (an_object(a={"type": ["string", "null"]}), {"a": 1}, "a was given 1, wanted string or null"),
        (an_object(a=INTEGER), {"a": 0}, "a was given 0, wanted at least 1"),
        (an_object(a=INTEGER), {"a": 10}, "a was given 10, wanted at most 9"),
        (an_object(a={"enum": ["x", 1]}), {"a": "y"}, 'a was given "y", wanted one of "x", 1'),
        (an_object(a={"const": 7}), {"a": 8}, "a was given 8, wanted 7"),
        (an_object(a={"anyOf": [STRING, {"type": "null"}]}), {"a": 1}, 'wanted anyOf [{"type": "string"}'),
        (an_object(a=STRING) | {"additionalProperties": False}, {"b": 1}, "'b' was unexpected"),
        (an_object(a={"items": an_object(b=STRING)}), {"a": [{}, {"b": 1}]}, "a[1].b was given 1, wanted string"),
        (an_object(a={"items": {"required": ["b"]}}), {"a": [{}]}, "a[0].b is missing"),
        ({"minProperties": 1}, {}, "all of it was given {}, wanted minProperties 1"),
        (an_object(a=STRING), {"a": ["\ud800" * 500]}, "…, wanted string"),
    ],
)
def test_a_complaint_names_the_argument_what_was_given_and_what_is_wanted(
    schema: dict[str, Any], arguments: dict[str, Any], says: str
) -> None:
    complaint = argument_error("tool", schema, arguments)
    assert complaint is not None and says in complaint and len(complaint) < 350
    assert complaint.startswith("The arguments of tool do not fit: ")


def test_at_most_five_complaints_at_once() -> None:
    schema = an_object(**dict.fromkeys("abcdefgh", STRING))
    complaint = argument_error("tool", schema, dict.fromkeys("abcdefgh", 1))
    assert complaint is not None and complaint.count("wanted string") == 5


@pytest.mark.parametrize(
    "schema", [{}, an_object(a=STRING), {"$ref": "#/$defs/x", "$defs": {"x": an_object(a=STRING)}}]
)
def test_fitting_arguments_bring_no_complaint(schema: dict[str, Any]) -> None:
    assert argument_error("tool", schema, {"a": "x"}) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strng"},
        {"$ref": "http://127.0.0.1:9/never-fetched"},
        {"$ref": "#/$defs/missing"},
        an_object(a={"pattern": "("}),
    ],
)
def test_a_broken_schema_is_the_tools_fault_and_nothing_is_fetched(schema: dict[str, Any]) -> None:
    complaint = argument_error("tool", schema, {"a": "x"})
    assert complaint is not None and complaint.startswith("tool cannot be used, because its own schema is wrong")


def test_deep_nesting_is_a_complaint() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    schema = {
        "$ref": "#/$defs/x",
        "$defs": {"x": {"anyOf": [STRING, {"type": "array", "items": {"$ref": "#/$defs/x"}}]}},
    }
    complaint = argument_error("tool", an_object(a={"$ref": "#/$defs/x"}) | {"$defs": schema["$defs"]}, {"a": deep})
    assert complaint is not None and "nested too deeply" in complaint


def doubling(levels: int) -> dict[str, Any]:
    """A schema whose check follows 2 to the power of `levels` references."""
    defs = {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level - 1}"}] * 2} for level in range(1, levels + 1)}
    return an_object(a={"$ref": f"#/$defs/d{levels}"}) | {"$defs": {"d0": STRING, **defs}}


EVIL = "^(a|aa)+$"


@pytest.mark.parametrize(
    "schema",
    [
        doubling(40),
        an_object(a={"pattern": EVIL}),
        {"type": "object", "patternProperties": {EVIL: STRING}},
        {"additionalProperties": False, "patternProperties": {EVIL: STRING}},
    ],
    ids=["references", "pattern", "pattern of names", "other names than of a pattern"],
)
def test_a_check_that_never_ends_is_given_up(schema: dict[str, Any]) -> None:
    endless = "a" * 60 + "!"
    complaint = argument_error("tool", schema, {"a": endless, endless: "x"})
    assert complaint is not None and "take too long to check" in complaint
    assert argument_error("tool", an_object(a=STRING), {"a": "x"}) is None


@pytest.mark.parametrize(
    "items",
    [
        {"oneOf": [{"const": number} for number in range(500)]},
        {"properties": {f"p{number}": {} for number in range(500)}},
        {"enum": list(range(20_000))},
    ],
    ids=["branches", "properties", "values"],
)
def test_a_check_of_many_branches_for_many_items_is_given_up(items: dict[str, Any]) -> None:
    complaint = argument_error("tool", an_object(a={"items": items}), {"a": [1] * 4_000})
    assert complaint is not None and "take too long to check" in complaint


DEEP = [list(range(9_000))]
SLOW = "^(.*?,){3}P"  # of the third power: some milliseconds for each text, within the limit of one


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"allOf": [{"uniqueItems": True}] * 2_000}, DEEP),
        ({"anyOf": [STRING] * 2_000}, DEEP),
        ({"anyOf": [{"type": "integer"}] * 2_000}, "x\n" * 200_000),
        ({"items": {"not": {"pattern": SLOW}}}, [f"{number}{',' * 120}" for number in range(3_000)]),
    ],
    ids=["compared", "shown", "long text", "patterns"],
)
def test_a_check_has_a_limit_of_time_whatever_a_step_costs(schema: dict[str, Any], value: object) -> None:
    began = time.thread_time()
    complaint = argument_error("tool", an_object(a=schema), {"a": value})
    assert complaint is not None and "take too long to check" in complaint
    assert time.thread_time() - began < 20 * MAX_S, "with the reading of the schema; else seconds and minutes"


def test_names_of_a_pattern_are_no_further_ones() -> None:
    schema = an_object(a=STRING) | {"additionalProperties": False, "patternProperties": {"^n_": INTEGER}}
    assert argument_error("tool", schema, {"a": "x", "n_x": 1}) is None
    complaint = argument_error("tool", schema, {"n_x": 1, "b": 1})
    assert complaint is not None and "'b' was unexpected" in complaint


def test_a_schema_that_is_wrong_is_read_once() -> None:
    wrong = an_object(a={"type": "no such type", "title": "read once"})
    complaints = {argument_error("tool", wrong, {"a": 1}) for _ in range(3)}
    before = _validator.cache_info()
    complaints.add(argument_error("tool", wrong, {"a": 1}))
    assert len(complaints) == 1
    assert _validator.cache_info().misses == before.misses


@pytest.mark.parametrize(
    ("items", "is_unique"),
    [
        ([{"a": number} for number in range(4_000)], True),  # 10 s if each is compared with each
        ([{"a": 1, "b": [2]}, 1, {"b": [2], "a": 1}], False),
        ([1, True, "1", None, [1], {"1": 1}], True),
        ("aa", True),
    ],
)
def test_items_that_must_differ_are_compared_in_one_go(items: object, is_unique: bool) -> None:
    assert (argument_error("tool", an_object(a={"uniqueItems": True}), {"a": items}) is None) == is_unique
    assert argument_error("tool", an_object(a={"uniqueItems": False}), {"a": items}) is None


def test_bounded_patterns_still_say_no() -> None:
    complaint = argument_error("tool", an_object(a={"pattern": "^[a-z]+$"}), {"a": "A"})
    assert complaint is not None and 'wanted pattern "^[a-z]+$"' in complaint
    assert argument_error("tool", doubling(3), {"a": "x"}) is None
    assert argument_error("tool", {"patternProperties": {"^n_": INTEGER}}, {"n_x": "1"}) is not None
    assert argument_error("tool", an_object(a={"pattern": "x" * (LONGEST_PATTERN + 1)}), {"a": "A"}) is None


def test_the_checker_is_not_loaded_before_the_first_call() -> None:
    code = "import sys, tools.toolbox, tools.catalogue; sys.exit(bool({'jsonschema', 'psutil'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
