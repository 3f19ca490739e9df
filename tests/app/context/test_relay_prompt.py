"""The opening of a relay: the tools where they must be taught, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from app.context.relay_prompt import CALL_NOW, IF_NEEDED, MOST_TOOLS, described_tools, relay_opening
from app.core.provider import CallForm
from parsing import parse
from tests.support.models.chatting import BASH

READ = replace(
    BASH, name="read_file", description="Reads.\nA file.", parameters={"type": "object", "properties": {"path": {}}}
)
TAUGHT = (CallForm.TAGGED, CallForm.FENCED)


@pytest.mark.parametrize("form", CallForm)
def test_without_tools_nothing_is_added(form: CallForm) -> None:
    assert relay_opening(form, []) == ()
    assert relay_opening(form, [BASH], {"tool_choice": "none"}) == ()


def test_native_tools_are_not_taught() -> None:
    assert relay_opening(CallForm.NATIVE, [BASH]) == ()


@pytest.mark.parametrize("form", TAUGHT)
def test_tools_are_taught_with_their_schemas_and_nothing_else(form: CallForm) -> None:
    (message,) = relay_opening(form, [BASH, READ])
    assert message.role == "system"
    lines = [json.loads(line) for line in message.text.split("\n") if line.startswith("{")]
    assert [line["name"] for line in lines] == ["bash", "read_file"]
    assert lines[1]["arguments"] == READ.parameters
    assert IF_NEEDED in message.text
    for word in ("dragoman", "Today", "folder"):
        assert word not in message.text
    assert not parse(message.text, {tool.name: tool.parameters for tool in (BASH, READ)}).calls


@pytest.mark.parametrize(
    ("choice", "taught", "sentence"),
    [
        ("auto", {"bash", "read_file"}, IF_NEEDED),
        ("required", {"bash", "read_file"}, CALL_NOW.format(names="one of the tools")),
        ({"type": "function", "function": {"name": "bash"}}, {"bash"}, CALL_NOW.format(names="bash")),
    ],
)
def test_a_choice_decides_what_is_taught(choice: Any, taught: set[str], sentence: str) -> None:
    (message,) = relay_opening(CallForm.TAGGED, [BASH, READ], {"tool_choice": choice})
    lines = [json.loads(line) for line in message.text.split("\n") if line.startswith("{")]
    assert {line["name"] for line in lines} == taught
    assert message.text.endswith(sentence)


def test_no_more_tools_are_described_than_there_is_room_for() -> None:
    large = [replace(BASH, name=f"t{number}", description="x" * 50_000) for number in range(100)]
    assert len([*described_tools(large)]) <= 1 + MOST_TOOLS // 50_000
    (message,) = relay_opening(CallForm.TAGGED, large)
    assert "left out" in message.text
