"""Going in circles: what counts as that, and what never may."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.messages import AskedCall
from app.runs.discipline.loop_detector import MOST, STALE, STREAK, LoopDetector

QUICK = settings(derandomize=True, deadline=None, max_examples=80)
Brought = tuple[str, str]
"""A command and its result."""


def rounds_until_broken(rounds: Sequence[Sequence[Brought]], *, prose: bool = False) -> int | None:
    """The round in which a run that plays these is found to go in circles."""
    stall = LoopDetector()
    for number, brought in enumerate(rounds, start=1):
        calls = [
            AskedCall(f"c{number}x{at}", "bash", {"command": command}, "native")
            for at, (command, _) in enumerate(brought)
        ]
        results = {call.id: result for call, (_, result) in zip(calls, brought, strict=True)}
        if stall.detects(calls, results, prose=prose):
            return number
    return None


A, B, C, D = ("ls", "a b"), ("cat a", "x"), ("cat b", "y"), ("make", "ok")


@pytest.mark.parametrize(
    ("rounds", "prose", "broken"),
    [
        ([[A]] * 20, False, STREAK),
        ([[A, B]] * 20, False, STREAK),
        ([[A, B], [B, A]] * 10, False, STREAK),
        ([[A]] * 20, True, 5),
        ([[A], [B]] * 10, False, 5),
        ([[A], [B], [C]] * 10, True, 3 + STALE),
        ([[A], [B], [C], [D], [("pwd", "/")]] * 10, True, 5 + STALE),
        ([[A], [B], [C], [D]] * 2 + [[A], [B], [C], [("pwd", "/")]] * 2, True, None),
        ([[A], [B], [A], [C], [A], [D], [A], [("pwd", "/")], [A]], False, None),
        ([[A], [A], [B], [A], [A]], False, None),
        ([[B], [C], [A], [A], [A]], False, None),
        ([[A, ("step", str(number))] for number in range(10)], False, None),
        ([[A]] * 3, False, None),
        ([[A, ("step", str(number))] for number in range(40)], False, MOST),
        ([[A] * MOST], False, 1),
        ([[("date", str(number)) for number in range(MOST)]], False, 1),
        ([[A] * (MOST - 1)], False, None),
    ],
)
def test_what_counts_as_going_in_circles(rounds: list[list[Brought]], prose: bool, broken: int | None) -> None:
    assert rounds_until_broken(rounds, prose=prose) == broken


@QUICK
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_a_call_that_brings_something_new_each_time_is_no_circle(polls: list[tuple[str, bool]]) -> None:
    """Polling: the same call for ever, or a few in turn, while each result differs from all before it."""
    assert rounds_until_broken([[(f"status {job}", f"{number} %")] for number, (job, _) in enumerate(polls)]) is None


@QUICK
@given(st.text(max_size=600), st.lists(st.text(min_size=1), min_size=5, max_size=12, unique=True), st.text(max_size=50))
def test_scripts_that_begin_alike_are_different_calls(head: str, tails: list[str], result: str) -> None:
    assert rounds_until_broken([[(head + tail, result)] for tail in tails]) is None


@QUICK
@given(
    st.lists(st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), min_size=1, max_size=3), max_size=9),
    st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), min_size=1, max_size=3),
)
def test_whatever_came_before_the_same_round_without_end_is_noticed(
    before: list[list[Brought]], again: list[Brought]
) -> None:
    broken = rounds_until_broken([*before, *[again] * STREAK])
    assert broken is not None and broken <= len(before) + STREAK


def test_the_order_of_arguments_and_the_name_of_the_own_call_are_no_news() -> None:
    stall = LoopDetector()
    for number in range(STREAK):
        arguments = {"a": 1, "b": 2} if number % 2 else {"b": 2, "a": 1}
        call = AskedCall(f"c{number:08}", "read", arguments, "native")
        results = {call.id: f"Long. read_result(call={call.id}) shows the rest."}
        broken = stall.detects([call], results, prose=False)
    assert broken
