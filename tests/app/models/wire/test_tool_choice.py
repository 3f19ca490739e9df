"""`tool_choice`, in all its forms."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from app.models.wire.tool_choice import ToolChoice, may_call, tool_choice
from tests.support.models.chatting import BASH

READ = replace(BASH, name="read_file")
NAMED = [{"type": "function", "function": {"name": "bash"}}]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ("any", ToolChoice("required")),
        (NAMED[0], ToolChoice("required", ("bash",))),
        ({"type": "function", "name": "bash"}, ToolChoice("required", ("bash",))),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": NAMED}},
            ToolChoice("required", ("bash",)),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [*NAMED, 1, {}]}, ToolChoice("auto", ("bash",))),
        ({"type": "function"}, ToolChoice()),
        (7, ToolChoice()),
    ],
)
def test_a_choice_is_read(given: Any, expected: ToolChoice) -> None:
    assert tool_choice({} if given is None else {"tool_choice": given}) == expected


def test_only_none_forbids_calls() -> None:
    assert [may_call({"tool_choice": one}) for one in ("none", "auto", "required", NAMED[0])] == [False, *[True] * 3]
    assert may_call({})


def test_the_chosen_tools_are_offered_or_all() -> None:
    tools = [BASH, READ]
    assert ToolChoice("required", ("bash",)).offered(tools) == [BASH]
    assert ToolChoice("required", ("gone",)).offered(tools) == tools
    assert ToolChoice().offered(tools) == tools
