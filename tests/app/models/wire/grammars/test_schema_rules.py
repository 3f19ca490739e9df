"""JSON Schema as GBNF: the rules take what the schema takes, and no other keys, names or types."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.wire.grammars.schema_rules import MOST_PARTS, Rules, arguments_rule
from tests.support.models.gbnf_matcher import takes

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=6)
NAMES = st.sampled_from(["path", "n-1", 'a "b"', "é", "x]^", "\\", "last"])
Pair = tuple[Any, Any]  # a schema, and a value that fits it


def grammar_of(schema: Any) -> str:
    rules = Rules()
    return f"root ::= {arguments_rule(rules, schema)}\n{rules}"


def pair(schema: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Pair]:
    return values.map(lambda value: (schema, value))


LEAVES = st.one_of(
    pair({"type": "string"}, TEXT),
    pair({"type": "string", "minLength": 1, "maxLength": 4}, st.text("ab\n", min_size=1, max_size=4)),
    pair({"type": "integer"}, st.integers(-(10**12), 10**12)),
    pair({"type": "int", "minimum": 0}, st.integers(0, 10**12)),
    pair({"type": "number"}, st.floats(allow_nan=False, allow_infinity=False)),
    pair({"type": ["boolean", "null"]}, st.sampled_from([True, False, None])),
    pair({"enum": ["a]", 1, None, "\ud800"]}, st.sampled_from(["a]", 1, None])),
    pair({"const": "^"}, st.just("^")),
    pair({}, st.recursive(TEXT | st.none(), lambda inner: st.lists(inner, max_size=2), max_leaves=3)),
)


def array(inner: Pair) -> st.SearchStrategy[Pair]:
    schema, value = inner
    return st.integers(0, 3).map(lambda size: ({"type": "array", "items": schema, "maxItems": 3}, [value] * size))


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    found = draw(st.dictionaries(NAMES, inner, max_size=4))
    left_out = draw(st.sets(st.sampled_from(sorted(found)))) if found else set()
    schema = {
        "type": "object",
        "properties": {name: schema for name, (schema, _) in found.items()},
        "required": [name for name in found if name not in left_out],
    }
    value = {name: value for name, (_, value) in found.items() if name not in left_out}
    if draw(st.booleans()):
        schema["additionalProperties"] = {"type": "boolean"}
        value["further"] = True
    return schema, value


def alternatives(pairs: tuple[Pair, Pair]) -> Pair:
    (one, value), (other, _) = pairs
    return {"anyOf": [other, one], "description": "either"}, value


PAIRS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(inner.flatmap(array), objects(inner), st.tuples(inner, inner).map(alternatives)),
    max_leaves=6,
)


@given(objects(PAIRS), st.sampled_from([None, 2]))
def test_what_the_schema_takes_the_grammar_takes(found: Pair, indent: int | None) -> None:
    schema, value = found
    grammar = grammar_of(schema)
    assert takes(grammar, json.dumps(value, indent=indent, ensure_ascii=False))
    assert not takes(grammar, json.dumps({**value, "never": 1}))


LOOP = {"properties": {"child": {"$ref": "#"}, "n": {"type": "integer"}}, "required": ["n"], "type": "object"}
TAKEN = [
    (LOOP, {"child": {"child": {"n": 2}, "n": 1}, "n": 3}, True),
    (LOOP, {"child": {"n": "1"}, "n": 3}, False),
    ({"properties": {"a": {"type": "string"}}}, {}, True),
    ({"properties": {"a": {"type": "string"}}}, {"a": 1}, False),
    ({"properties": {}}, {}, True),
    ({}, {"anything": [1]}, True),
    ({"required": ["q"]}, {"q": None}, True),
    ({"required": ["q"]}, {}, False),
    ({"properties": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$defs": {"a": {"enum": [1]}}}, {"a": 1}, True),
    ({"properties": {"a": {"$ref": "#/gone"}}}, {"a": "any"}, True),
    ({"properties": {"a": {"type": "string", "pattern": "^x"}}}, {"a": "y"}, True),
    ({"properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 1}, True),
    ({"properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}, False),
    ({"properties": {"a": {"type": "array", "items": {"type": "null"}, "minItems": 2}}}, {"a": [None]}, False),
    ({"properties": {"a": {"type": "array", "maxItems": 0}}}, {"a": []}, True),
    ({"properties": {"a": {}}, "additionalProperties": {}}, {"b": 1}, True),
    ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}, False),
    ({"additionalProperties": {"type": "null"}}, {"b": None}, True),
    ({"patternProperties": {"^x": {"type": "null"}}, "properties": {}}, {"x": 1}, True),
    ({"properties": {"a": {"type": "integer", "minimum": 1}}}, {"a": 0}, False),
    ({"properties": {"a": {"type": "integer", "minimum": 1}}}, {"a": 10}, True),
    ({"properties": {"a": "no schema"}}, {"a": 1}, True),
    ({"properties": [1], "required": "a", "type": 7}, {"b": 1}, True),
    ({"properties": {"a": {"type": "odd"}}}, {"a": 1}, True),
]


@pytest.mark.parametrize(("schema", "value", "taken"), TAKEN)
def test_references_alternatives_and_odd_schemas(schema: Any, value: Any, taken: bool) -> None:
    assert takes(grammar_of(schema), json.dumps(value)) is taken


def nested(depth: int) -> Any:
    return {"properties": {"a": nested(depth - 1)}} if depth else {"type": "integer"}


def missing_in(grammar: str) -> set[str]:
    """Rules that are named and not there, which llama.cpp refuses."""
    lines = [line.split(" ::= ") for line in grammar.splitlines()]
    bare = [re.sub(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]', "", text) for _, text in lines]
    return {name for text in bare for name in re.findall(r"[a-z]\w*", text)} - {name for name, _ in lines}


SELF = {"allOf": [{"$ref": "#"}, {"$ref": "#"}], "properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
LOST = {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, SELF]}}}
MANY = {"properties": {"a": {"enum": [*range(MOST_PARTS + 1)]}}}
WIDE = {"properties": {f"p{number}": {"type": "integer"} for number in range(MOST_PARTS + 1)}}
NAMED = {"required": [f"p{number}" for number in range(30 * MOST_PARTS)]}
MERGED: Any = {"properties": {"a": {"allOf": [{"properties": {f"p{number}": {}}} for number in range(2 * MOST_PARTS)]}}}


@pytest.mark.parametrize("schema", [nested(400), SELF, WIDE, LOST, MANY, NAMED, MERGED])
def test_a_large_schema_costs_little_and_takes_any_object(schema: Any) -> None:
    started = time.monotonic()
    grammar = grammar_of(schema)
    assert time.monotonic() - started < 1
    assert len(grammar) < 1_000_000
    assert takes(grammar, "{}")
    assert missing_in(grammar) == set()


ALONE = {"properties": {"a": {"$ref": "#/properties/a"}}}
EACH_OTHER = {
    "properties": {"a": {"$ref": "#/properties/b"}, "b": {"anyOf": [{"$ref": "#/properties/a"}, {"type": "null"}]}}
}


@pytest.mark.parametrize("schema", [ALONE, EACH_OTHER, {"$ref": "#"}])
def test_what_refers_to_itself_and_is_nothing_else_may_be_anything(schema: Any) -> None:
    grammar = grammar_of(schema)  # llama.cpp refuses a rule that begins with itself
    assert takes(grammar, '{"a": 5}')
    assert not takes(grammar, '{"a": }')
