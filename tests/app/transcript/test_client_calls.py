"""Calls of a client's tools: under its names, with the arguments that its schemas allow, whatever the model wrote."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.transcript.client_calls import declared_name, fitted_for_client, permitted

ANYTHING: dict[str, Any] = {"type": "object"}
NAMES = ("bash", "read_file", "WebFetch", "mcp__files__search", "mcp__web__search", "mcp__web__open", "shell.exec")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("bash", "bash"),
        ("Bash", "bash"),
        (" BASH\n", "bash"),
        ("`bash`", "bash"),
        ("functions.bash", "bash"),
        ("Functions.Bash", "bash"),
        ("tool.bash", "bash"),
        ("default_api.read_file", "read_file"),
        ("mcp__local__bash", "bash"),
        ("namespace:bash", "bash"),
        ("readFile", "read_file"),
        ("read-file", "read_file"),
        ("functions.readFile", "read_file"),
        ("web_fetch", "WebFetch"),
        ("webfetch", "WebFetch"),
        ("open", "mcp__web__open"),
        ("web__open", "mcp__web__open"),
        ("web.open", "mcp__web__open"),
        ("functions.open", "mcp__web__open"),
        ("files__search", "mcp__files__search"),
        ("exec", "shell.exec"),
        ("bash<|channel|>commentary", "bash"),
        # These can mean two, or none.
        ("search", "search"),
        ("mcp__other__search", "mcp__other__search"),
        ("mcp__files__open", "mcp__files__open"),
        ("write_file", "write_file"),
        ("", ""),
        ("__", "__"),
        ("functions.", "functions."),
        ("bash" * 1000, "bash" * 1000),
    ],
)
def test_a_name_is_the_one_declared_name_that_it_can_mean(written: str, meant: str) -> None:
    assert declared_name(written, dict.fromkeys(NAMES, ANYTHING)) == meant


def test_names_that_differ_in_case_alone_are_two() -> None:
    declared = {"read": ANYTHING, "Read": ANYTHING}
    assert [declared_name(name, declared) for name in ("read", "Read", "READ")] == ["read", "Read", "READ"]


def strict(more: dict[str, Any] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False} | (more or {})


TEXT = {"type": "string"}
NODE = {"$defs": {"node": strict(name=TEXT, children={"type": "array", "items": {"$ref": "#/$defs/node"}})}}
CIRCLE: dict[str, Any] = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, strict(a=TEXT)]}


@pytest.mark.parametrize(
    ("schema", "written", "kept"),
    [
        (strict(a=TEXT), {"a": "1", "b": 2}, {"a": "1"}),
        (strict(), {"a": 1}, {}),
        ({"type": "object", "properties": {"a": TEXT}}, {"a": "1", "b": 2}, {"a": "1", "b": 2}),
        ({}, {"a": 1}, {"a": 1}),
        (strict(a=strict(b=TEXT)), {"a": {"b": "1", "c": 2}}, {"a": {"b": "1"}}),
        (strict(a={"type": "array", "items": strict(b=TEXT)}), {"a": [{"b": "1", "c": 2}, 3]}, {"a": [{"b": "1"}, 3]}),
        ({"additionalProperties": strict(b=TEXT)}, {"x": {"b": "1", "c": 2}}, {"x": {"b": "1"}}),
        (strict({"patternProperties": {"^x": {}}}), {"x1": 1, "y": 2}, {"x1": 1, "y": 2}),
        ({"$ref": "#/$defs/node", **NODE}, {"name": "a", "size": 1}, {"name": "a"}),
        (
            strict(NODE, root={"$ref": "#/$defs/node"}),
            {"root": {"name": "a", "children": [{"name": "b", "size": 1, "children": [{"depth": 3}]}]}},
            {"root": {"name": "a", "children": [{"name": "b", "children": [{}]}]}},
        ),
        ({"allOf": [{"properties": {"a": TEXT}}, strict(b=TEXT)]}, {"a": "1", "b": "2"}, {"b": "2"}),
        ({"anyOf": [strict(a=TEXT), strict(b=TEXT)]}, {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "2"}),
        ({"anyOf": [strict(a=TEXT), ANYTHING]}, {"a": "1", "b": "2"}, {"a": "1", "b": "2"}),
        (strict(a={"anyOf": [strict(b=TEXT), {"type": "null"}]}), {"a": {"b": "1", "c": 2}}, {"a": {"b": "1"}}),
        (
            {"allOf": [{"properties": {"a": TEXT}}], "unevaluatedProperties": False},
            {"a": "1", "b": 2},
            {"a": "1"},
        ),
        (CIRCLE, {"a": "1", "b": 2}, {"a": "1", "b": 2}),  # it only has to end
        ({"$ref": "#/$defs/missing"}, {"a": 1}, {"a": 1}),
        # Another spelling of a declared name is that one.
        (strict(filePath=TEXT), {"file_path": "x"}, {"filePath": "x"}),
        (strict(filePath=TEXT), {"file_path": "x", "filePath": "y"}, {"filePath": "y"}),
        (strict(a=TEXT, A=TEXT), {"_a": "x"}, {}),
        (strict(filePath=strict(b=TEXT)), {"file_path": {"b": "1", "c": 2}}, {"filePath": {"b": "1"}}),
        # A tool's schema may be odd.
        ({"properties": None, "additionalProperties": False}, {"a": 1}, {}),
        ({"allOf": "x", "anyOf": [1], "$ref": 2}, {"a": 1}, {"a": 1}),
    ],
)
def test_what_a_schema_forbids_is_left_out(schema: dict[str, Any], written: dict[str, Any], kept: Any) -> None:
    assert permitted(written, schema) == kept


def test_a_call_is_fitted_as_a_whole() -> None:
    declared = {"read_file": strict(path=TEXT, limit={"type": "integer"})}
    written = {"path": "a", "limit": "5", "why": "I look."}
    assert fitted_for_client("functions.Read_File", written, declared) == ("read_file", {"path": "a", "limit": 5})
    assert fitted_for_client("write_file", written, declared) == ("write_file", written)
    assert fitted_for_client("bash", written, {}) == ("bash", written)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["a", "object", "#", "#/properties/a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["a", "b", "properties", "additionalProperties", "items", "anyOf", "allOf", "$ref", "type"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
OBJECT = st.dictionaries(st.sampled_from(["a", "b", "properties", "additionalProperties", "allOf", "$ref"]), JSON)


@given(OBJECT, OBJECT)
def test_any_schema_can_be_read_and_nothing_is_added(schema: dict[str, Any], written: dict[str, Any]) -> None:
    once = permitted(written, schema)
    assert len(once) <= len(written)
    assert permitted(once, schema) == once
