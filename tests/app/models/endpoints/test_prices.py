"""Prices: which row of the table holds, what tokens cost by it, and that sums do not drift."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.endpoint_spec import Price
from app.core.provider import TokenUsage
from app.models.endpoints.model_handle import ModelHandle
from app.models.endpoints.prices import cost_of, entry_of, total
from app.models.scripted import Scripted
from app.models.tokens.counter import TokenCounter

TABLE = {
    "gpt": Price(input=1, output=2),
    "hosted/gpt": Price(input=3, output=4),
    "org/large:free": Price(input=5, output=6),
    "hosted/org/*": Price(input=7, output=8),
    "*-mini": Price(input=9, output=10),
    "hosted/*": Price(input=11, output=12),
    "odd[1]": Price(input=13, output=14),
}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("hosted/gpt", 3),
        ("other/gpt", 1),
        ("hosted/org/large:free", 5),  # its own name goes before any pattern
        ("hosted/org/small", 7),
        ("hosted/some-mini", 9),  # the first pattern that fits
        ("other/some-mini", 9),
        ("hosted/any", 11),
        ("hosted/GPT", 11),
        ("other/odd[1]", 13),
        ("other/any", None),
        ("gpt/other", None),
    ],
)
def test_the_row_that_is_nearest_holds(name: str, found: float | None) -> None:
    price = entry_of(TABLE, name)
    assert (price.input if price else None) == found


@pytest.mark.parametrize(
    ("used", "cost"),
    [
        (TokenUsage(0, 0), 0),
        (TokenUsage(1_000_000, 0), 3),
        (TokenUsage(0, 1_000_000), 15),
        (TokenUsage(1000, 100), 0.0045),
        (TokenUsage(1000, 100, 600), 0.0045 - 600 * 2.7e-6),
        (TokenUsage(1000, 100, 600, 400), 600 * 0.3e-6 + 400 * 3.75e-6 + 0.0015),
        (TokenUsage(1000, 100, None, 1000), 1000 * 3.75e-6 + 0.0015),
        (TokenUsage(10, 0, 8, 8), 8 * 0.3e-6 + 8 * 3.75e-6),  # never less than nothing for what is left
    ],
)
def test_what_was_cached_has_a_entry_of_its_own(used: TokenUsage, cost: float) -> None:
    assert cost_of(Price(input=3, output=15, cached=0.3, cache_written=3.75), used) == pytest.approx(cost, abs=1e-12)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_without_prices_of_its_own_a_cache_changes_nothing(prompt: int, cached: int, written: int) -> None:
    prompt += cached + written
    price = Price(input=2.5, output=10)
    assert cost_of(price, TokenUsage(prompt, 5, cached, written)) == cost_of(price, TokenUsage(prompt, 5))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**5)), max_size=300))
def test_sums_do_not_drift(rounds: list[tuple[int, int]]) -> None:
    price, totals = Price(input=0.15, output=0.6), None
    for prompt, answer in rounds:
        totals = total(totals, cost_of(price, TokenUsage(prompt, answer)))
    assert totals == (sum(150 * prompt + 600 * answer for prompt, answer in rounds) / 10**9 if rounds else None)


def test_what_has_no_price_costs_nothing_that_is_known() -> None:
    assert total(None, None) is None and total(None, 0.5, None, 0.25) == 0.75


def test_a_model_that_gets_its_name_late_has_its_price_then() -> None:
    provider = Scripted([], model="auto")
    target = ModelHandle("hosted", provider, TokenCounter(provider), {"*/gpt": Price(input=1, output=1)})
    assert target.cost(TokenUsage(10**6, 0)) is None
    provider.model = "gpt"
    assert target.cost(TokenUsage(10**6, 0)) == 1


@pytest.mark.parametrize("amount", [True, "1", -1, 1e7, math.nan, math.inf, None])
def test_what_is_no_amount_of_money(amount: Any) -> None:
    with pytest.raises(ValueError, match="input"):
        Price(input=amount, output=1)
