"""Queries for lists of somebody's sessions: the ones used last, or those that hold some words."""

from __future__ import annotations

from app.storage.search_words import UNSPACED, anywhere, quoted, without_spaces, words_of
from app.storage.sqlite.statements import SESSION_COLUMNS

LOOKED_AT = 20_000  # messages, the newest ones of those that match: what others have said must not make it slow
READ = 2_000  # messages that are read through where words have no spaces between them
SHORTEST = 3  # letters that may be the beginning of a word; shorter ones begin too many

BEHIND = "(updated, id) < (SELECT updated, id FROM sessions WHERE id = ?)"
COLUMNS = ", ".join(f"sessions.{name}" for name in SESSION_COLUMNS.split(", "))
Query = tuple[str, tuple[object, ...]]


def newest(principal: str, limit: int, before: str | None) -> Query:
    """Those used last; with `before` only those behind that session."""
    behind, place = (f" AND {BEHIND}", [before]) if before else ("", [])
    query = f"SELECT {SESSION_COLUMNS} FROM sessions WHERE principal = ?{behind} ORDER BY updated DESC, id DESC LIMIT ?"
    return query, (principal, *place, limit)


def holding(principal: str, query: str, limit: int) -> list[Query]:
    """Queries for sessions with all words of `query` in one message, or in the title; the last column is that message.

    Newest first, and of each session the newest message. No query, where there are no words.
    """
    words = words_of(query)
    if not words:
        return []
    asked = [_in_titles(principal, words, limit)]
    if indexed := [word for word in words if any(map(str.isalnum, word))]:
        asked.append(_by_words(principal, indexed, limit))
    if without_spaces(words):
        asked.append(_by_parts(principal, words, limit))
    return asked


def _in_titles(principal: str, words: list[str], limit: int) -> Query:
    like = " AND ".join([r"title LIKE ? ESCAPE '\'"] * len(words))
    query = f"""
        SELECT {SESSION_COLUMNS}, '' FROM sessions WHERE principal = ? AND {like}
        ORDER BY updated DESC, id DESC LIMIT ?
    """
    return query, (principal, *map(anywhere, words), limit)


def _by_words(principal: str, words: list[str], limit: int) -> Query:
    matched = f"""
        SELECT message_numbers.session, message_numbers.position, message_numbers.number FROM (
            SELECT rowid AS number FROM message_words WHERE message_words MATCH ? ORDER BY rowid DESC LIMIT {LOOKED_AT}
        ) AS words JOIN message_numbers USING (number)
    """
    all_of_them = " AND ".join(f"{quoted(word)}{' *' if _begins(word) else ''}" for word in words)
    return _with_messages(matched), (f"text : ({all_of_them})", principal, limit)


def _by_parts(principal: str, words: list[str], limit: int) -> Query:
    like = " AND ".join([r"text LIKE ? ESCAPE '\'"] * len(words))
    matched = f"""
        SELECT session, position, number FROM (
            SELECT session, position, number FROM message_numbers
            WHERE session IN (SELECT id FROM sessions WHERE principal = ?) ORDER BY number DESC LIMIT {READ}
        ) AS newest JOIN message_texts USING (session, position) WHERE {like}
    """
    return _with_messages(matched), (principal, *map(anywhere, words), principal, limit)


def _with_messages(matched: str) -> str:
    """Of each session the newest of the messages that have matched."""
    return f"""
        SELECT {COLUMNS}, message_texts.text FROM (
            SELECT session, position, MAX(number) FROM ({matched}) AS matched GROUP BY session
        ) AS found JOIN sessions ON sessions.id = found.session
        JOIN message_texts ON message_texts.session = found.session AND message_texts.position = found.position
        WHERE sessions.principal = ? ORDER BY sessions.updated DESC, sessions.id DESC LIMIT ?
    """


def _begins(word: str) -> bool:
    return len(word) >= SHORTEST or max(word) >= UNSPACED
