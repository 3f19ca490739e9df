"""The words of a search, and texts as a search compares them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from tools.base.patterns import lazy_pattern

MOST_WORDS, LONGEST = 16, 64
_BETWEEN = lazy_pattern(r"[\s\x00-\x1f\ud800-\udfff]+")


def words_of(query: str) -> list[str]:
    """The distinct words of a query, the first ones if there are many."""
    found = (word[:LONGEST] for word in _BETWEEN.split(query[: 2 * MOST_WORDS * LONGEST]) if word)
    return list(dict.fromkeys(found))[:MOST_WORDS]


def folded(text: str) -> str:
    """The text without case and marks, as the full text index compares it; every character keeps its position."""
    if text.isascii():
        return text.lower()
    return "".join(unicodedata.normalize("NFKD", one)[0].lower()[:1] for one in text)


def has_whole(text: str, words: Sequence[str]) -> bool:
    """Return True if a text has each of the words, and not only as a part of a longer one."""
    return all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) for word in words)


def phrase(words: Sequence[str]) -> str:
    """For MATCH of SQLite: the words one behind the other, literally; one that ends in `*` is the beginning of one."""
    text = " ".join(words)
    prefix = text.endswith("*")
    doubled = text.removesuffix("*").replace('"', '""')
    return f'"{doubled}"{" *" if prefix else ""}'
