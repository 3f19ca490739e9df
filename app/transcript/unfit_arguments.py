"""Arguments of a call that cannot be written as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from math import isfinite
from typing import Any

from parsing import Arguments

MOST_VALUES = 10_000  # in all: each is looked at some ten times, by the gate, redaction and the log
NESTED_MOST = 64  # levels; deeper arguments overflow the stack of the JSON writer


def unfit(arguments: Arguments) -> str | None:
    """Return why these arguments cannot be written as JSON and what to do instead, or None."""
    level: list[Any] = [arguments]
    left = MOST_VALUES
    for _ in range(NESTED_MOST):
        if any(isinstance(value, float) and not isfinite(value) for value in level):
            return "The arguments hold NaN or Infinity, which JSON does not have. Send the call again without."
        level = list(islice((inner for value in level for inner in _inside(value)), left + 1))
        if not level:
            return None
        if (left := left - len(level)) < 0:
            return f"The arguments have more than {MOST_VALUES:,} values. Send the call again with fewer."
    return f"The arguments are nested more than {NESTED_MOST} levels deep. Send the call again with flatter ones."


def _inside(value: Any) -> Iterable[Any]:
    match value:
        case dict():
            return value.values()
        case list():
            return value
    return ()
