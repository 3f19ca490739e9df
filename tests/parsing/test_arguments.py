"""Text to values: the coercion law, and repairs that have one reading only."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from parsing import parse
from parsing.arguments import coerce_text
from parsing.literals import MAX_DEPTH, MAX_TOKENS, Literals, Unreadable, loads

SCHEMA: dict[str, Any] = {
    "$defs": {"size": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}},
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "flag": {"type": "boolean"},
        "maybe": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "array"}, {"type": "string"}]},
        "object": {"type": "object"},
        "size": {"$ref": "#/$defs/size"},
        "loop": {"$ref": "#/$defs/loop"},
        "level": {"enum": [1, 2, "high"]},
        "fixed": {"const": True},
        "free": {},
        "number_or_text": {"type": ["string", "integer"]},
        "odd": 3,
    },
}
FITTED = [
    ("text", "null", "null"),
    ("text", "0042", "0042"),
    ("text", "1e5", "1e5"),
    ("text", " true ", " true "),
    ("count", " 12 ", 12),
    ("count", "12.0", 12),
    ("count", "07", 7),
    ("count", "12.5", "12.5"),
    ("count", "many", "many"),
    ("share", "1e3", 1000.0),
    ("share", "-.5", -0.5),
    ("share", "nan", "nan"),
    ("share", "9" * 5000, "9" * 5000),
    ("flag", "True", True),
    ("flag", "false", False),
    ("flag", "yes", "yes"),
    ("maybe", "null", None),
    ("maybe", "None", None),
    ("maybe", "nothing", "nothing"),
    ("either", '["a"]', ["a"]),
    ("either", "['a', 'b']", ["a", "b"]),
    ("either", "[a", "[a"),
    ("object", "{'a': True}", {"a": True}),
    ("size", "3", 3),
    ("loop", "3", "3"),
    ("level", "2", 2),
    ("level", "high", "high"),
    ("fixed", "true", True),
    ("free", "3", "3"),
    ("unknown", "3", "3"),
    ("odd", "3", "3"),
    ("number_or_text", "7", 7),
    ("number_or_text", "x", "x"),
]
REPAIRED = {
    '{"a": 1,}': {"a": 1},
    "{'a': 'it\\'s', 'b': None}": {"a": "it's", "b": None},
    '{a: "x", b: 2}': {"a": "x", "b": 2},
    '{"a": "one\ntwo\t"}': {"a": "one\ntwo\t"},
    '{"a": "\\d+"}': {"a": "\\d+"},
    '{"a": "say "hi" now"}': {"a": 'say "hi" now'},
    '{"a": "\\ud83d\\udeb2", "b": \'x\'}': {"a": "\U0001f6b2", "b": "x"},
    '{"a": [1, 2,], "b": True}}': {"a": [1, 2], "b": True},
    "{'a': \"cook's den\"}": {"a": "cook's den"},
    '{"a": 007, }': {"a": 7},
    '{"a": [1, 2}': {"a": [1, 2]},
    "{\"a\": '''long \"text\"'''}": {"a": 'long "text"'},
    '{"a": 1, // it\'s {one\n"b": 2}': {"a": 1, "b": 2},
    '{"a": "x" // the end\n}': {"a": "x"},
    '{/* one */ "a": /* two */ 1 # three\n, # four\n} // five': {"a": 1},
    '{"a": "http://x # y /* z */",}': {"a": "http://x # y /* z */"},
    '{"a": "say "hi" # now\n"}': {"a": 'say "hi" # now\n'},
}
REFUSED = [
    "", "{", '{"a": }', '{"a": "x', '{"a": 1 "b": 2}', "{'a': f(x)}", '{"a": NaN}', "[" * 5000,
    '{"a": 1} and more', "{1 2}", '{"a": 1 /* }', '{"a": 1 / 2}', "{//", '{"a": 1} / more',
    "\ud800", "[" * (MAX_DEPTH + 1) + "'x'" + "]" * (MAX_DEPTH + 1),
]  # fmt: skip


@pytest.mark.parametrize(("key", "text", "value"), FITTED)
def test_text_becomes_what_the_schema_allows(key: str, text: str, value: Any) -> None:
    fitted = coerce_text(text, SCHEMA, key)
    assert (fitted, type(fitted)) == (value, type(value))


@pytest.mark.parametrize(
    ("key", "inline", "value"),
    [
        ("number_or_text", "string", "12"), ("number_or_text", "str", "12"), ("number_or_text", "number", 12),
        ("free", "string", "12"), ("free", "int", 12), ("unknown", "float", 12), ("unknown", "array", "12"),
        ("count", "string", 12), ("text", "number", "12"), ("flag", "number", "12"), ("count", "json", 12),
        ("text", "json", "12"), ("free", "json", 12), ("share", "integer", 12),
    ],
)  # fmt: skip
def test_a_type_that_the_model_wrote_decides_between_those_that_the_schema_allows(
    key: str, inline: str, value: Any
) -> None:
    fitted = coerce_text("12", SCHEMA, key, inline)
    assert (fitted, type(fitted)) == (value, type(value))


@pytest.mark.parametrize("text", REPAIRED)
def test_one_reading_is_repaired(text: str) -> None:
    assert loads(text) == REPAIRED[text]


def test_missing_closers_are_added_only_to_text_that_has_ended() -> None:
    assert loads('{"a": {"b": [1', ended=True) == {"a": {"b": [1]}}
    with pytest.raises(Unreadable):
        loads('{"a": {"b": [1')


@pytest.mark.parametrize("text", REFUSED)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        loads(text)


def test_repairs_are_bounded() -> None:
    with pytest.raises(Unreadable, match="too long"):
        loads("[" + "1," * 30_000 + "'x']")


MEGABYTE = 1_000_000
HOSTILE = {
    "quotes inside a text": '{a: "' + 'x" ' * (MEGABYTE // 3) + '"}',
    "escapes": "{a: '" + "\\n" * (MEGABYTE // 2) + "'}",
    "comments": "{" + "//\n" * (MEGABYTE // 3) + "a: 1}",
    "quotes before comments": '{a: "' + '" /*' * (MEGABYTE // 4),
    "quotes in comments": '{a: "' + '\n// "' * (MEGABYTE // 5),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_the_marks_in_texts_and_comments_are_bounded(text: str) -> None:
    """Each costs a step, whatever the reader makes of it, and again for each quote that is passed by."""
    with pytest.raises(Unreadable, match="too long to repair"):
        loads(text)
    for reading in (Literals(text, comments=True), Literals(text)):
        with suppress(Unreadable):
            reading.value()
        assert min(reading.marks, reading.tokens) >= -1


def test_all_tries_together_read_no_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each quote that is passed by has the text read again from its beginning."""
    read, count = list[int](), Literals._count_token

    def counted(reading: Literals) -> None:
        read.append(1)
        count(reading)

    monkeypatch.setattr(Literals, "_count_token", counted)
    with pytest.raises(Unreadable):
        loads("{" + "a: 1, " * (MAX_TOKENS // 4) + "b: 'c'd', " * 8 + "!")
    assert len(read) <= MAX_TOKENS + 1


def test_code_in_a_string_survives_a_repair_byte_for_byte() -> None:
    code = 'def f(a):\n    return {"x": [a, "b"]}  # it\'s "quoted"\n' * 40
    written = code.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    call = f'<tool_call>{{"name": "run", "arguments": {{"code": "{written}"}}</tool_call>'
    [made] = parse(call, {"run": {"type": "object", "properties": {"code": {"type": "string"}}}}).calls
    assert made.arguments == {"code": code}


@pytest.mark.parametrize("arguments", ["[1]", "3", '"text"', "true"])
def test_arguments_that_are_no_object_are_refused(arguments: str) -> None:
    tools = {"run": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}}
    parsed = parse(f'<tool_call>{{"name": "run", "arguments": {arguments}}}</tool_call>', tools)
    assert parsed.calls == [] and "JSON object" in parsed.rejected[0].reason
