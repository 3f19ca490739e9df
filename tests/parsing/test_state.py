"""The scanner's modes: which may follow which, and that each step of the table is taken."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from parsing import Parser
from parsing.state import AFTER, CALL, FENCE, FOLLOWS, OVER, SPAN, TEXT, Mode, State

TOOLS: dict[str, dict[str, Any]] = {"ping": {"type": "object", "properties": {"host": {"type": "string"}}}}
OPENER, BODY, CLOSER = "<tool_call>{", '"name": "ping", "arguments": {}}', "</tool_call>"
VOID = '<function_calls><invoke name="ping"/>'
# a message in pieces, and the mode after each of them
PATHS: dict[str, list[tuple[str, Mode]]] = {
    "inline code": [("So `", TEXT), ("x", SPAN), ("` ", TEXT)],
    "inline code that its line does not close": [("So `", TEXT), ("x", SPAN), ("\n", TEXT)],
    "a fence": [("```text\n", FENCE), ("x\n", FENCE), ("```\n", TEXT)],
    "a call": [("So: ", TEXT), (OPENER, CALL), (BODY, AFTER), (CLOSER, AFTER), (" so", TEXT)],
    "two calls in a block": [(OPENER, CALL), (BODY, AFTER), (f"\n{{{BODY}", AFTER), (CLOSER, AFTER)],
    "a call cut in a block": [(OPENER, CALL), (BODY, AFTER), ("\n{", CALL)],
    "an opener that is a whole call": [(VOID, AFTER), (' <invoke name="ping"/>', AFTER)],
    "a form that is none": [("{", CALL), ('"colour": ', TEXT)],
    "a form with text behind it": [(f"{{{BODY}", AFTER), (" so", TEXT)],
    "an invented result": [(OPENER, CALL), (BODY, AFTER), (" <tool_response>", OVER), ("x", OVER)],
    "an invented result in reasoning that ends": [
        ("<think>", TEXT),
        (f"{OPENER}{BODY}", AFTER),
        (" <tool_response>", OVER),
        ("x</think>", TEXT),
    ],
    "a call in reasoning that ends": [("<think>", TEXT), (f"{OPENER}{BODY}", AFTER), ("</think>", TEXT)],
}


def modes(path: list[tuple[str, Mode]]) -> list[Mode]:
    """The modes after each piece; the pieces come a character at a time."""
    parser, found = Parser(TOOLS), []
    for piece, _ in path:
        for character in piece:
            parser.feed(character)
        found.append(parser._state.mode)
    return found


@pytest.mark.parametrize("name", PATHS)
def test_a_message_goes_through_the_modes(name: str) -> None:
    assert modes(PATHS[name]) == [mode for _, mode in PATHS[name]]


def test_every_mode_says_what_may_follow() -> None:
    assert set(FOLLOWS) == set(Mode)
    assert all(OVER in following for following in FOLLOWS.values())


@pytest.mark.parametrize(
    ("before", "after"), [(before, after) for before in Mode for after in Mode if after not in FOLLOWS[before]]
)
def test_anything_else_is_refused(before: Mode, after: Mode) -> None:
    with pytest.raises(AssertionError, match=f"{after.name} cannot follow {before.name}"):
        State(mode=before).enter(after)


def test_the_end_of_the_message_is_the_end() -> None:
    for pieces in (["So"], [OPENER], [OPENER, BODY], ["```\n"], ["So `x"]):
        parser = Parser(TOOLS)
        for piece in pieces:
            parser.feed(piece)
        parser.close()
        assert parser._state.mode is OVER
        assert parser.feed("more") == [] == parser.close()


def test_the_table_allows_no_more_than_happens() -> None:
    """Each step of the table is taken by one of the messages above, or by their end."""
    taken = {(TEXT, TEXT), *((mode, OVER) for mode in Mode)}
    for path in PATHS.values():
        steps = [TEXT, *(mode for _, mode in path)]
        taken |= set(pairwise(steps))
    assert taken >= {(before, after) for before, following in FOLLOWS.items() for after in following}
