"""Searches in sessions in SQLite, whose full text index is brought up to date before each."""

from __future__ import annotations

from app.core.messages import Message, load
from app.storage.search_words import words_of
from app.storage.sessions import Found
from app.storage.sql.search import by_parts, newest_found, sessions_with, without_spaces
from app.storage.sql.sessions import SqlSessions
from app.storage.sqlite.database import Database
from app.storage.sqlite.search import BY_WORDS, INDEX_MESSAGES, NEW_MESSAGES, matching, with_words

# Messages of a run that stand before its request were left behind by the run before it.
REQUEST = """
    SELECT messages.message FROM messages JOIN runs ON runs.id = messages.run
    WHERE messages.session = ? AND messages.run = ? AND json_extract(message, '$.role') = 'user'
    ORDER BY json_extract(message, '$.at') IS NOT runs.created, position LIMIT 1
"""


class SQLiteSessions(Database, SqlSessions):
    _request = REQUEST

    async def find_sessions(self, principal: str, query: str, limit: int) -> list[Found]:
        await self._index_messages()
        return newest_found(await self._each(*sessions_with(principal, query, limit, with_words)), limit)

    async def search(self, session: str, query: str, limit: int) -> list[tuple[int, Message]]:
        words = words_of(query)
        if not words:
            return []
        await self._index_messages()
        rows = await self._all(BY_WORDS, matching(session, words), session, limit)
        if len(rows) < limit and (not rows or without_spaces(words)):
            parts, values = by_parts(words)
            rows += await self._all(parts, session, *values, limit)
        best = list(dict(map(tuple, rows)).items())[:limit]  # each once
        return [(position, load(message)) for position, message in best]

    async def _index_messages(self, pause_s: float = 0.0) -> None:
        """Index the words of new messages, with pauses for those who write. A server's visitor leaves that to it."""
        while not self._visitor and await self._all(f"SELECT 1 {NEW_MESSAGES} LIMIT 1"):
            async with self._one_writer, self._named_failures():
                await self._catch_up_now()  # fails if the messages could only be read as if they were applied
                await self._writer.write([(INDEX_MESSAGES, [()])])
            await self._pause(pause_s)
