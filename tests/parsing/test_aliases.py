"""An argument under another common name: read alike in every dialect where it can mean one thing, else left."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsing import Call, Parser, parse
from parsing.aliases import LONGEST, MEANINGS, MOST_DECLARED, meanings, renamed
from parsing.fitting import read_arguments
from tests.support.parsing.forms import WRITERS
from tools.catalogue import TOOLS

SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}


def schema(*required: str, **more: Any) -> dict[str, Any]:
    names = {name: {"type": "string"} for name in [*required, *more.pop("optional", ())]}
    return {"type": "object", "properties": names, "required": [*required], **more}


@pytest.mark.parametrize("dialect", sorted(WRITERS.keys() - {"tool_name_tag"}))  # a call only with the declared names
@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("read_file", {"file": "a.txt"}, {"path": "a.txt"}),
        ("bash", {"cmd": "ls"}, {"command": "ls"}),
        ("write_file", {"file_path": "a.txt", "text": "hello"}, {"path": "a.txt", "content": "hello"}),
        ("edit_file", {"filename": "a", "old_string": "x", "new_string": "y"}, {"path": "a", "old": "x", "new": "y"}),
    ],
)
def test_a_common_name_is_read_in_every_dialect(
    dialect: str, name: str, written: dict[str, Any], meant: dict[str, Any]
) -> None:
    text = WRITERS[dialect]([(name, written)])
    plain = parse(WRITERS[dialect]([(name, meant)]), SCHEMAS).calls
    found = parse(text, SCHEMAS)
    assert [(call.name, call.arguments) for call in found.calls] == [(name, meant)], text
    assert [call.arguments for call in plain] == [meant], "and so is the declared one"
    assert len(found.calls[0].repairs) == len(written) and found.calls[0].repairs[0].endswith('".')


@pytest.mark.parametrize(
    ("fence", "arguments"),
    [
        ('```read_file\n{"file": "a.txt"}\n```', {"path": "a.txt"}),
        ('```bash\n{"cmd": "ls"}\n```', {"command": "ls"}),
        ('```read_file {"filename": "a.txt"}\n```', {"path": "a.txt"}),
        ('```read_file file="a.txt"\n```', {"path": "a.txt"}),
        ('```write_file\n{"file_path": "a", "text": "b"}\n```', {"path": "a", "content": "b"}),
        ('```bash\n{"cmd": "ls", "command": "id"}\n```', {"command": '{"cmd": "ls", "command": "id"}'}),
    ],
)
def test_a_json_object_in_the_fence_of_a_tool_is_its_arguments(fence: str, arguments: dict[str, Any]) -> None:
    parser = Parser(SCHEMAS, fences=True)
    calls = [event for event in [*parser.feed(fence), *parser.close()] if isinstance(event, Call)]
    assert [call.arguments for call in calls] == [arguments]


@pytest.mark.parametrize(
    ("given_", "declared", "meant"),
    [
        ({"filePath": "a"}, schema("path"), {"path": "a"}),
        ({"PATH": "a"}, schema("path"), {"path": "a"}),
        ({"file-path": "a"}, schema("file_path"), {"file_path": "a"}),
        ({"dir": "src"}, schema(optional=["path", "pattern"]), {"path": "src"}),
        ({"search": "x"}, schema("query", optional=["old"]), {"query": "x"}),
        ({"cmd": "ls"}, schema("command", additionalProperties=False), {"command": "ls"}),
    ],
)
def test_one_meaning_is_the_declared_name(given_: dict[str, Any], declared: dict[str, Any], meant: Any) -> None:
    assert renamed(given_, declared)[0] == meant


@pytest.mark.parametrize(
    ("given_", "declared"),
    [
        ({"file": "a", "filename": "b"}, schema("path")),
        ({"path": "a", "file": "b"}, schema("path")),
        ({"script": "x"}, schema("command", "code")),
        ({"search": "x"}, schema("query", "old")),
        ({"city": "Rome"}, schema("path")),
        ({"file": "a"}, schema("path", additionalProperties=True)),
        ({"file": "a"}, schema("path", additionalProperties={"type": "string"})),
        ({"file": "a"}, schema("path", patternProperties={"^f": {}})),
        ({"file": "a"}, {}),
        ({"file": "a"}, {"type": "object"}),
        ({f"file{number}": "a" for number in range(100)}, schema("path")),
        ({"file": "a"}, schema("path", *map(str, range(MOST_DECLARED)))),
        ({"fi" + "_" * LONGEST + "le": "a"}, schema("path")),
    ],
    ids=lambda value: str(value)[:80],
)
def test_what_may_mean_more_stays(given_: dict[str, Any], declared: dict[str, Any]) -> None:
    assert renamed(given_, declared) == (given_, ())


@given(st.dictionaries(st.text(max_size=8) | st.sampled_from(sorted(frozenset().union(*MEANINGS))), st.integers()))
def test_nothing_is_lost_and_a_second_time_changes_nothing(arguments: dict[str, Any]) -> None:
    for declared in SCHEMAS.values():
        once = read_arguments(arguments, declared)[0]
        assert sorted(map(repr, once.values())) == sorted(map(repr, arguments.values()))
        assert read_arguments(once, declared)[0] == once


def test_the_names_of_the_catalogue_are_told_apart() -> None:
    for tool in TOOLS:
        names = list(tool.parameters.get("properties", {}))
        alike = [(one, two) for one in names for two in names if one < two and meanings(one) & meanings(two)]
        assert not alike, tool.name
