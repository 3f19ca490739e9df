"""Times of a round and of a run."""

from __future__ import annotations

from time import perf_counter

import pytest

from app.core.provider import TokenUsage
from app.transcript.run_totals import RunTotals
from app.transcript.timings import RequestTimes


@pytest.mark.parametrize(
    ("times", "tokens", "timing"),
    [
        (RequestTimes(1, 1.5), 0, {"preparation_s": 0.5}),
        (RequestTimes(1, 1.25, 2.25, 4.25), 21, {"preparation_s": 0.25, "first_token_s": 1.0, "tokens_per_s": 10.0}),
        (RequestTimes(1, 1.5, fitted=1.25), 0, {"preparation_s": 0.5, "context_s": 0.25}),
        (RequestTimes(1, 1, 2, 2.01), 21, {"preparation_s": 0.0, "first_token_s": 1.0}),
        (RequestTimes(1, 1, 2, 9), 1, {"preparation_s": 0.0, "first_token_s": 1.0}),
        (RequestTimes(1, 1, 2, 9000), 2, {"preparation_s": 0.0, "first_token_s": 1.0}),
    ],
    ids=["no answer", "an answer", "a preparation", "at once", "one token", "hardly any"],
)
def test_a_round_has_the_times_that_there_were(times: RequestTimes, tokens: int, timing: dict[str, float]) -> None:
    assert times.timing(tokens) == timing


def test_a_run_has_the_sum_of_its_rounds_and_the_first_token_of_the_first() -> None:
    totals = RunTotals()
    totals.add(TokenUsage(9, 0), measured=True, timing={"preparation_s": 0.5})
    totals.add(
        TokenUsage(9, 11),
        measured=True,
        timing={"preparation_s": 0.25, "first_token_s": 0.5, "tokens_per_s": 10.0},
    )
    totals.add(TokenUsage(9, 31), measured=True, timing={"preparation_s": 0, "first_token_s": 3, "tokens_per_s": 30.0})
    totals.add(TokenUsage(9, 99), measured=True)  # a side query
    timing = totals.finished("answered").usage["timing"]
    assert timing == {"preparation_s": 0.75, "first_token_s": 0.5, "tokens_per_s": 20.0}
    assert "timing" not in RunTotals().finished("cancelled").usage


def test_a_first_round_has_the_steps_before_it_that_took_time() -> None:
    totals = RunTotals()
    with totals.times.step("recall_s"):
        until = perf_counter() + 0.002
        while perf_counter() < until:
            pass
    with totals.times.step("tools_s"):
        pass
    assert totals.add(TokenUsage(9, 0), measured=True).timing is None  # a side query
    rounds = [totals.add(TokenUsage(9, 0), measured=True, timing={"preparation_s": 0.5}) for _ in range(2)]
    first, second = (one.timing or {} for one in rounds)
    assert first.keys() == {"preparation_s", "recall_s"} and first["recall_s"] >= 0.002
    assert second == {"preparation_s": 0.5}
