"""The full text index of PostgreSQL: words are found by this program, as SQLite's index finds them.

A text is given to PostgreSQL as the words that it has and where, a search as the words to look for, so that neither
its dictionaries nor the locale of the database decide what a word is.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from tools.base.patterns import lazy_pattern

LONGEST = 200  # characters of a word; PostgreSQL allows 2,046 bytes
MOST_BYTES = 600_000  # of a text's words; PostgreSQL allows a megabyte
MOST_PLACES = 255  # of one word
LAST_PLACE = 16_383
_WORD = lazy_pattern(r"[^\W_]+")


def words_in(text: str) -> list[str]:
    """The words of a text, without case and marks."""
    if not text.isascii():
        parts = unicodedata.normalize("NFKD", text)
        text = "".join(one for one in parts if not unicodedata.combining(one))
    return [word[:LONGEST] for word in _WORD.findall(text.lower())]


def indexed(text: str) -> str:
    """The words of a text as a tsvector."""
    places: dict[str, list[str]] = {}
    size = 0
    for place, word in enumerate(words_in(text), start=1):
        if (known := places.get(word)) is None:
            size += len(word.encode(errors="replace")) + 8
            if size > MOST_BYTES:
                break
            places[word] = known = []
        if len(known) < MOST_PLACES and place <= LAST_PLACE:
            known.append(str(place))
    return " ".join(f"'{word}':{','.join(at)}" if at else f"'{word}'" for word, at in places.items())


def phrase(text: str, *, prefix: bool = False) -> str:
    """A tsquery for the words of a text, one behind the other; the last may begin a longer one. Empty without words."""
    words = [f"'{word}'" for word in words_in(text)]
    if words and prefix:
        words[-1] += ":*"
    return f"({' <-> '.join(words)})" if words else ""


def any_of(phrases: Iterable[str]) -> str:
    return " | ".join(filter(None, phrases))


def all_of(phrases: Sequence[str]) -> str:
    return " & ".join(filter(None, phrases))
