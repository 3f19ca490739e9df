"""SQLite's full text index of messages and of memories; that of messages is brought up to date before each search.

Words reach it quoted, so that a query is well-formed whatever they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.messages import Message
from app.storage.search_words import phrase, words_of
from app.storage.sessions import FoundSession
from app.storage.sql.memories import SqlMemories
from app.storage.sql.rows import Query
from app.storage.sql.search import MOST_MATCHES, best_found, is_prefix, sessions_with
from app.storage.sql.sessions import SqlSessions
from app.storage.sqlite.connections import transact
from app.storage.sqlite.database import Database

# Messages of a run that stand before its request were left behind by the run before it.
REQUEST = """
    SELECT messages.message FROM messages JOIN runs ON runs.id = messages.run
    WHERE messages.session = ? AND messages.run = ? AND json_extract(message, '$.role') = 'user'
    ORDER BY json_extract(message, '$.at') IS NOT runs.created, position LIMIT 1
"""
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
MATCHES = """
    SELECT memories.id FROM memory_words JOIN memories ON memories.number = memory_words.rowid
    WHERE memory_words MATCH ? AND memories.owner = ?
    ORDER BY bm25(memory_words, 0.0, 1.0), memories.number DESC LIMIT ?
"""


class SQLiteSessions(Database, SqlSessions, SqlMemories):
    _request = REQUEST

    async def find_sessions(self, principal: str, query: str, limit: int) -> list[FoundSession]:
        await self._index_messages()
        return best_found(await self._each(*sessions_with(principal, query, limit, with_words)), query, limit)

    async def search(self, session: str, query: str, limit: int) -> list[tuple[int, Message]]:
        words = words_of(query)
        if not words:
            return []
        await self._index_messages()
        rows = await self._all(BY_WORDS, matching(session, words), session, limit)
        return await self._with_parts(session, words, rows, limit)

    async def memory_matches(self, owner: str, words: Sequence[Sequence[str]], limit: int) -> list[str]:
        if not words:
            return []
        matched = f"owner : {phrase([owner])} AND words : ({' OR '.join(map(phrase, words))})"
        return [one for (one,) in await self._all(MATCHES, matched, owner, limit)]

    async def _index_messages(self, pause_s: float = 0.0) -> None:
        """Index the words of new messages, with pauses for those who write. A server's visitor leaves that to it."""
        more = not self._visitor and bool(await self._all(f"SELECT 1 {NEW_MESSAGES} LIMIT 1"))
        while more:
            async with self._one_writer, self._named_failures():
                await self._catch_up_now()  # fails if the messages could only be read as if they were applied
                more = await self._writer.call(transact, [(INDEX_MESSAGES, [()])]) == [MOST_INDEXED]
            await self._pause(pause_s)


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
