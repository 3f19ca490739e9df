"""Statements of `app.storage.sql` for PostgreSQL: the few words that it has for something else, and `$n` for `?`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count

from tools.base.patterns import lazy_pattern

# SQLite's word -> PostgreSQL's. There LIKE tells capitals from small letters, and JSON that is text is no list.
WORDS = {"rowid": "number", "LIKE": "ILIKE", "json_each": "json_values"}
_WORD = lazy_pattern(r"'[^']*'|\b(?:" + "|".join(WORDS) + r")\b|\?")


@cache
def translated(sql: str) -> str:
    """Return a statement with `$1`, `$2` ... for its values."""
    numbers = count(1)
    return with_values(sql, lambda: f"${next(numbers)}")


def with_values(sql: str, value: Callable[[], str]) -> str:
    """Return a statement with what `value` returns for each `?`; texts in quotes stay as they are."""
    return _WORD.sub(lambda found: value() if found[0] == "?" else WORDS.get(found[0], found[0]), sql)
