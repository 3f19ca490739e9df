"""SQLite's full text index of messages.

Words reach it quoted, so that a query is well-formed whatever they are.
"""

from __future__ import annotations

from app.storage.sql.rows import Query
from app.storage.sql.search import MOST_MATCHES, is_prefix

BY_WORDS = """
    SELECT messages.position, messages.message FROM message_words
    JOIN message_numbers ON message_numbers.number = message_words.rowid
    JOIN messages ON messages.session = message_numbers.session AND messages.position = message_numbers.position
    WHERE message_words MATCH ? AND messages.session = ?
    ORDER BY bm25(message_words), messages.position DESC LIMIT ?
"""
MOST_INDEXED = 16  # messages in one transaction, for which others wait
# Numbers rise, so that what is not indexed is behind all that is.
NEW_MESSAGES = "FROM message_numbers WHERE number > (SELECT COALESCE(MAX(id), 0) FROM message_words_docsize)"
INDEX_MESSAGES = f"""
    INSERT INTO message_words (rowid, session, text)
    SELECT number, session, text
    FROM (SELECT number, session, position {NEW_MESSAGES} ORDER BY number LIMIT {MOST_INDEXED}) AS new
    LEFT JOIN message_texts USING (session, position)
"""
WITH_WORDS = f"""
    SELECT message_numbers.session, message_numbers.position, message_numbers.number FROM (
        SELECT rowid AS number FROM message_words WHERE message_words MATCH ?
        ORDER BY rowid DESC LIMIT {MOST_MATCHES}
    ) AS words JOIN message_numbers USING (number)
"""


def matching(session: str, words: list[str]) -> str:
    """For MATCH: messages of the session with any of the words, or words that begin with one."""
    return f"session : {_quoted(session)} AND text : ({' OR '.join(f'{_quoted(word)} *' for word in words)})"


def with_words(words: list[str]) -> Query:
    all_of_them = " AND ".join(f"{_quoted(word)}{' *' if is_prefix(word) else ''}" for word in words)
    return WITH_WORDS, (f"text : ({all_of_them})",)


def _quoted(word: str) -> str:
    """For MATCH: the word literally."""
    doubled = word.replace('"', '""')
    return f'"{doubled}"'
