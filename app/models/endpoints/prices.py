"""Cost of tokens by the price table of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

from app.core.endpoint_spec import Price
from app.core.provider import TokenUsage

Entry = TypeVar("Entry")

MILLION = 1_000_000
DIGITS = 9  # decimals of a cost: sums that are rounded to them do not drift


def entry_of(table: Mapping[str, Entry], name: str) -> Entry | None:
    """Return the entry of `endpoint/model`: by its full name, by the model name, or by the first matching pattern."""
    names = (name, name.partition("/")[2])
    for one in names:
        if one in table:
            return table[one]
    return next((entry for pattern, entry in table.items() if any(fnmatchcase(one, pattern) for one in names)), None)


def cost_of(price: Price, used: TokenUsage) -> float:
    """Return the cost in the table's currency; cache reads and cache writes have prices of their own."""
    cached, written = used.cached or 0, used.cache_written or 0
    at = price.input * max(0, used.prompt_tokens - cached - written) + price.output * used.completion_tokens
    at += cached * (price.input if price.cached is None else price.cached)
    at += written * (price.input if price.cache_written is None else price.cache_written)
    return round(at / MILLION, DIGITS)


def total(*costs: float | None) -> float | None:
    """Return the sum of the known costs; None if none is known."""
    known = [cost for cost in costs if cost is not None]
    return round(sum(known), DIGITS) if known else None
