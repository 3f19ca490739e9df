"""The table of dialects: where it is shown, and that each row can be read."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from parsing.dialects import DIALECTS, FAMILIES, listed
from routes.cli.dialects.parse_text import dialect_table, parse_stdin, print_dialects, tools_in
from tests.support.parsing.cases import CASES, POLICIES

TOOLS = [{"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}]


def test_every_dialect_of_the_catalogue_is_a_row_and_the_other_way_round() -> None:
    names = [name for name, _, _ in listed()]
    assert len(names) == len(set(names))
    cases = [*CASES, *(case for cases in POLICIES.values() for case in cases)]
    assert set(names) == {case["dialect"] for case in cases} - {"plain"} | {"fence_tool_tag"}


def test_no_dialect_is_in_two_families() -> None:
    families: dict[str, set[str]] = {}
    for row in DIALECTS:
        for name in (row.name, *row.members):
            families.setdefault(name, set()).add(row.family)
    assert [name for name, found in families.items() if len(found) > 1] == []


def test_every_family_is_described() -> None:
    assert {row.family for row in DIALECTS} == FAMILIES.keys()


def test_events_are_a_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    reply = 'Hm.<think>x</think>\n<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>\n<tool_call>{"name": 1}'
    monkeypatch.setattr("sys.stdin", io.StringIO(reply))
    assert parse_stdin(tools, fences=True) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [event["type"] for event in events]
    assert kinds == ["text", "thought", "text", "opened", "delta", "call", "text", "rejected"]
    assert events[5] == {
        "type": "call",
        "index": 0,
        "name": "ping",
        "arguments": {},
        "dialect": "hermes",
        "repairs": [],
    }


def test_thoughts_in_hindsight_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Hm.</think>Yes."))
    assert parse_stdin(None, fences=True) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"type": "text", "text": "Hm."},
        {"type": "reclassified", "characters": 3, "calls": 0},
        {"type": "text", "text": "Yes."},
    ]


@pytest.mark.parametrize("content", ["", "[1]", "3", '{"ping": 1}', '[{"name": 4}]'])
def test_a_file_without_tools_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(content)
    assert parse_stdin(tools, fences=True) == 2
    assert str(tools) in capsys.readouterr().err


def test_tools_by_name(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text('{"ping": {"type": "object"}}')
    assert tools_in(tools) == {"ping": {"type": "object"}}


def test_dialects_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_dialects() == 0
    assert capsys.readouterr().out.splitlines() == list(dialect_table())
