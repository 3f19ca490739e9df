"""Titles of conversations and excerpts around search hits, each one line of plain text."""

from __future__ import annotations

from collections.abc import Sequence

from app.storage.search_words import folded
from tools.base.escape_invisible import visible

TITLE = 80  # characters of a title that is made of a message
LONGEST_TITLE = 200  # of one that a person gives
SNIPPET = 160
BEFORE = 40  # of a snippet, in front of the word that was found
MOST_PLACES = 64  # of words in a text that are marked
FOLDED = 4_000  # characters of a text that are compared without their marks, which takes long
NAMELESS = "No words"


def one_line(text: str) -> str:
    """The text as people see it, on one line."""
    return " ".join(visible(text).split())


def title_of(text: str) -> str:
    """The first line that says something, or what fits of it."""
    line = next(filter(None, map(one_line, text[: 50 * TITLE].splitlines())), "")
    if len(line) <= TITLE:
        return line
    cut = line[: TITLE - 1]
    words, _, rest = cut.rpartition(" ")
    return f"{(words if len(rest) < TITLE // 4 else cut).rstrip()}…"


def snippet(text: str, words: Sequence[str]) -> str:
    """The part of the text around the first of the words that it has."""
    at = _place(text, words)
    start = max(0, at - BEFORE)
    part = text[start : start + SNIPPET]
    if start and " " in part[:BEFORE]:  # at the beginning of a word
        part = part[part.index(" ") :]
    return f"{'… ' if start else ''}{one_line(part)}{' …' if start + SNIPPET < len(text) else ''}"


def places_of(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Return the places of the words in a short text: from and behind each, in order, without overlaps."""
    plain = folded(text)
    found = list[tuple[int, int]]()
    for word in map(folded, words):
        at = plain.find(word) if word else -1
        while at >= 0 and len(found) < MOST_PLACES:
            found.append((at, at + len(word)))
            at = plain.find(word, at + len(word))
    apart = list[tuple[int, int]]()
    for start, end in sorted(found):
        if apart and start <= apart[-1][1]:
            apart[-1] = apart[-1][0], max(end, apart[-1][1])
        else:
            apart.append((start, end))
    return apart


def _place(text: str, words: Sequence[str]) -> int:
    lowered = text.lower()
    if len(lowered) != len(text):  # some letters have more than one as small ones
        lowered = text
    places = [at for word in words if (at := lowered.find(word.lower())) >= 0]
    if not places and not text.isascii():
        plain = folded(text[:FOLDED])
        places = [at for word in words if (at := plain.find(folded(word))) >= 0]
    return min(places, default=0)
