"""A body that does not fit is no call, and a reading that leaves a remainder is no reading: for every dialect."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsing import parse
from tests.support.nightly import at_night
from tests.support.parsing.forms import WRITERS

TOOLS: dict[str, dict[str, Any]] = {
    "set_lamp": {
        "type": "object",
        "properties": {"room": {"type": "string"}, "level": {"type": "integer"}},
        "required": ["room"],
    },
    "ping_lab": {"type": "object", "properties": {}},
}
GIVEN = {"room": "attic", "level": 2}
PROSE = (
    " is wrong; use terminal.", "is wrong", "\nnot like this\n", " no (room, level) here! ", "<b>room", "“room”",
    " the room's level is \"2\" ",
)  # fmt: skip
WORDS = st.lists(st.sampled_from([*"a.;!?'\"()-2", "room", "level", "is", "wrong", "attic"]), min_size=1, max_size=8)
# Words in a tag, beside its attributes or in the type of a value, change no argument.
IN_A_TAG = re.compile(r"<[^<>]*zap![^<>]*>|=\"[^\"]*zap![^\"]*\"|<\|open\|>argument [^<]*zap!|<ifm\|arg_type>[^/]*zap!")
REMAINDERS = (
    " zap! ", "zap!", "' zap! ", '" zap! ', "') zap! '", '"} zap! "', "> zap! <", "</zap!>", "\nzap!\n", ", zap!, ",
)  # fmt: skip


def around(dialect: str, name: str, arguments: dict[str, Any]) -> tuple[str, str, str]:
    """A call as the dialect writes it: what stands before its arguments, the arguments, and what stands behind."""
    text, empty = (WRITERS[dialect]([(name, given)]) for given in (arguments, {}))
    start = next((at for at, pair in enumerate(zip(text, empty, strict=False)) if pair[0] != pair[1]), len(empty))
    end = 0
    while end < len(empty) - start and text[-1 - end] == empty[-1 - end]:
        end += 1
    return text[:start], text[start : len(text) - end], text[len(text) - end :]


def calls_in(text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in parse(text, TOOLS, fences=False).calls]


@pytest.mark.parametrize("dialect", sorted(WRITERS))
def test_prose_in_the_place_of_a_body_gives_no_call(dialect: str) -> None:
    for name, arguments in (("set_lamp", GIVEN), ("ping_lab", {"x": 1})):
        before, _, behind = around(dialect, name, arguments)
        for prose in PROSE:
            assert calls_in(before + prose + behind) == [], prose


@pytest.mark.parametrize("dialect", sorted(WRITERS))
@settings(deadline=None, max_examples=at_night(300, 15))
@given(WORDS.map(" ".join))
def test_no_words_in_the_place_of_a_body_give_a_call(dialect: str, words: str) -> None:
    before, _, behind = around(dialect, "set_lamp", GIVEN)
    assert calls_in(f"{before} {words} {behind}") == []


@pytest.mark.parametrize("dialect", sorted(WRITERS))
def test_a_remainder_in_a_body_never_runs_a_part_of_it(dialect: str) -> None:
    """Wherever words are inserted: a call that runs has them among its arguments, or is whole and they are shown."""
    before, body, behind = around(dialect, "set_lamp", GIVEN)
    for remainder in REMAINDERS:
        for at in range(0, len(body) + 1, at_night(1, 3)):
            text = before + body[:at] + remainder + body[at:] + behind
            parsed = parse(text, TOOLS, fences=False)
            told = parsed.content + "".join(each.raw for each in parsed.rejected)
            for call in parsed.calls:
                taken = "zap!" in json.dumps(call.arguments) or "zap!" in call.name
                assert taken or (call.arguments == GIVEN and ("zap!" in told or IN_A_TAG.search(text))), text
