"""Searches: the messages of a session, or the sessions of a principal, that have some words.

Each database has a view `message_texts` (session, position, text) of what a search looks at, and a table or view
`message_numbers` (number, session, position), whose numbers rise; its full text index is its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from app.storage.library.folders import EVERYWHERE, Shelf
from app.storage.search_words import folded, has_whole, words_of
from app.storage.sessions import FoundSession, SessionRow
from app.storage.sql.columns import names
from app.storage.sql.rows import Query

UNSPACED = "\u0e00"  # from here on (Thai, Chinese, Japanese ...) scripts put no spaces between words
MOST_MATCHES = 20_000  # the newest matching messages: messages of other principals must not make a search slow
MOST_SCANNED = 2_000  # messages that are scanned for words of scripts without spaces
MOST_COMPARED = 20_000  # characters of a message in which whole words rank it higher
SHORTEST_PREFIX = 3  # letters; a shorter word is searched as a whole, because too many begin with it

COLUMNS = names(SessionRow)
BEHIND = "(updated, id) < (SELECT updated, id FROM sessions WHERE id = ?)"


def by_parts(words: list[str]) -> tuple[str, list[str]]:
    """A query for texts that contain one of the words, and its values between the session and the limit."""
    like = " OR ".join([r"text LIKE ? ESCAPE '\'"] * len(words))
    query = f"""
        SELECT position, message FROM message_texts JOIN messages USING (session, position)
        WHERE session = ? AND ({like}) ORDER BY position DESC LIMIT ?
    """
    return query, [_anywhere(word) for word in words]


def without_spaces(words: list[str]) -> bool:
    """True if the index may have a word only as a part of a longer one."""
    return any(max(word) >= UNSPACED for word in words)


# Sessions of helpers are listed with the session that they work for, temporary ones not at all.
OF_PEOPLE = "NOT sessions.temporary AND NOT EXISTS (SELECT 1 FROM helpers WHERE helpers.session = sessions.id)"


# Of the branches of a conversation the one that was used last is listed.
LATEST = """
    NOT EXISTS (
        SELECT 1 FROM branches AS own JOIN branches AS other ON other.tree = own.tree
        JOIN sessions AS newer ON newer.id = other.session
        WHERE own.session = sessions.id AND (newer.updated, newer.id) > (sessions.updated, sessions.id)
    )
"""


def listed(principal: str, limit: int, before: str | None, shelf: Shelf = EVERYWHERE) -> Query:
    """The most recently used sessions; with `before` only those that follow that session."""
    conditions: list[str] = ["principal = ?", "archived" if shelf.archived else "NOT archived", OF_PEOPLE, LATEST]
    values: list[object] = [principal]
    if shelf.pinned:
        conditions.append("pinned")
    for condition, value in (("folder = ?", shelf.folder), (BEHIND, before)):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    query = f"SELECT {COLUMNS} FROM sessions WHERE {' AND '.join(conditions)} ORDER BY updated DESC, id DESC LIMIT ?"
    return query, (*values, limit)


def sessions_with(principal: str, query: str, limit: int, with_words: Callable[[list[str]], Query]) -> list[Query]:
    """Queries for sessions with all words of `query` in one message, or in the title.

    Newest first, behind titles with the words as a whole, and of each session the newest message, with its run, as the
    last columns. No query, where there are no words. `with_words` returns a query for the newest messages (session,
    position, number) with all of the words it is given.
    """
    words = words_of(query)
    if not words:
        return []
    queries = [_in_titles(principal, words, limit)]
    if indexed := [word for word in words if any(map(str.isalnum, word))]:
        matched, values = with_words(indexed)
        queries.append((_newest_messages(matched), (*values, principal, limit)))
    if without_spaces(words):
        queries.append(_with_parts(principal, words, limit))
    return queries


def _in_titles(principal: str, words: list[str], limit: int) -> Query:
    like = " AND ".join([r"title LIKE ? ESCAPE '\'"] * len(words))
    whole = " AND ".join([r"' ' || title || ' ' LIKE ? ESCAPE '\'"] * len(words))
    query = rf"""
        SELECT {COLUMNS}, '', '' FROM sessions WHERE principal = ? AND {like} AND {OF_PEOPLE}
        ORDER BY title LIKE ? ESCAPE '\' DESC, ({whole}) DESC, updated DESC, id DESC LIMIT ?
    """
    parts, separate = map(_anywhere, words), (_anywhere(f" {word} ") for word in words)
    return query, (principal, *parts, _escaped(" ".join(words)), *separate, limit)


def _with_parts(principal: str, words: list[str], limit: int) -> Query:
    like = " AND ".join([r"text LIKE ? ESCAPE '\'"] * len(words))
    matched = f"""
        SELECT session, position, number FROM (
            SELECT session, position, number FROM message_numbers
            WHERE session IN (SELECT id FROM sessions WHERE principal = ?) ORDER BY number DESC LIMIT {MOST_SCANNED}
        ) AS newest JOIN message_texts USING (session, position) WHERE {like}
    """
    return _newest_messages(matched), (principal, *map(_anywhere, words), principal, limit)


def _newest_messages(matched: str) -> str:
    """Of each session the newest of the messages that have matched."""
    return f"""
        SELECT {names(SessionRow, "sessions")}, message_texts.text, messages.run FROM (
            SELECT MAX(number) AS number FROM ({matched}) AS matched GROUP BY session
        ) AS newest JOIN message_numbers AS found ON found.number = newest.number
        JOIN sessions ON sessions.id = found.session
        JOIN message_texts ON message_texts.session = found.session AND message_texts.position = found.position
        JOIN messages ON messages.session = found.session AND messages.position = found.position
        WHERE sessions.principal = ? AND {OF_PEOPLE} ORDER BY sessions.updated DESC, sessions.id DESC LIMIT ?
    """


def best_found(answers: Iterable[Sequence[Sequence[Any]]], query: str, limit: int) -> list[FoundSession]:
    """Return what the queries of `sessions_with` have found: each session once, with its message if it has one.

    The best match comes first, and of equal ones the session used last.
    """
    found: dict[str, FoundSession] = {}
    for rows in answers:
        found |= {row[0]: FoundSession(SessionRow(*row[:-2]), row[-2] or "", row[-1] or "") for row in map(tuple, rows)}
    newest = sorted(found.values(), key=lambda one: (one.session.updated, one.session.id), reverse=True)
    return sorted(newest, key=lambda one: _rank(one, words_of(query)))[:limit]


def _rank(found: FoundSession, words: Sequence[str]) -> int:
    """Return how well a session matches, 0 at best: its title before its message, whole words before parts."""
    title, plain = folded(found.session.title), [folded(word) for word in words]
    if title.split() == plain:
        return 0
    if has_whole(title, plain):
        return 1
    if all(word in title for word in plain):
        return 2
    return 3 if has_whole(found.text[:MOST_COMPARED], words) else 4


def _anywhere(word: str) -> str:
    """For LIKE: texts that contain the word."""
    return f"%{_escaped(word)}%"


def _escaped(text: str) -> str:
    """For LIKE, with a backslash as the escape character: the text itself."""
    return re.sub(r"([\\%_])", r"\\\1", text)


def is_prefix(word: str) -> bool:
    return len(word) >= SHORTEST_PREFIX or max(word) >= UNSPACED
