"""A search as SQLite's full text index takes it: whatever the words are, the query is well-formed."""

from __future__ import annotations

import re
import unicodedata

MOST_WORDS, LONGEST = 16, 64
UNSPACED = "\u0e00"  # from here on (Thai, Chinese, Japanese ...) scripts put no spaces between words
_BETWEEN = re.compile(r"[\s\x00-\x1f\ud800-\udfff]+")

BY_WORDS = """
    SELECT messages.position, messages.message FROM message_words
    JOIN message_numbers ON message_numbers.number = message_words.rowid
    JOIN messages ON messages.session = message_numbers.session AND messages.position = message_numbers.position
    WHERE message_words MATCH ? AND messages.session = ?
    ORDER BY bm25(message_words), messages.position DESC LIMIT ?
"""


def words_of(query: str) -> list[str]:
    """The different words of a query, the first ones if there are many."""
    found = (word[:LONGEST] for word in _BETWEEN.split(query[: 2 * MOST_WORDS * LONGEST]) if word)
    return list(dict.fromkeys(found))[:MOST_WORDS]


def matching(session: str, words: list[str]) -> str:
    """For MATCH: messages of the session with any of the words, or words that begin so."""
    return f"session : {quoted(session)} AND text : ({' OR '.join(f'{quoted(word)} *' for word in words)})"


def by_parts(words: list[str]) -> tuple[str, list[str]]:
    """A query, and what it takes between the session and the limit, for texts that hold one of the words anywhere."""
    like = " OR ".join([r"text LIKE ? ESCAPE '\'"] * len(words))
    query = f"""
        SELECT position, message FROM message_texts JOIN messages USING (session, position)
        WHERE session = ? AND ({like}) ORDER BY position DESC LIMIT ?
    """
    return query, [anywhere(word) for word in words]


def anywhere(word: str) -> str:
    """For LIKE, with a backslash as the escape character: texts that hold the word."""
    return "%" + re.sub(r"([\\%_])", r"\\\1", word) + "%"


def without_spaces(words: list[str]) -> bool:
    """Whether a part of a word may be all that the index has of it."""
    return any(max(word) >= UNSPACED for word in words)


def quoted(word: str) -> str:
    """For MATCH: just this word, whatever is in it."""
    doubled = word.replace('"', '""')
    return f'"{doubled}"'


def folded(text: str) -> str:
    """As the index compares: without case and marks; every character stays where it is."""
    if text.isascii():
        return text.lower()
    return "".join(unicodedata.normalize("NFKD", one)[0].lower()[:1] for one in text)
