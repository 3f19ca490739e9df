"""Searches in sessions and memories in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.messages import Message
from app.storage.postgres.words import all_of, any_of, phrase
from app.storage.search_words import words_of
from app.storage.sessions import FoundSession
from app.storage.sql.memories import SqlMemories
from app.storage.sql.rows import Query
from app.storage.sql.search import MOST_MATCHES, best_found, is_prefix, sessions_with
from app.storage.sql.sessions import SqlSessions

# Messages of a run that stand before its request were left behind by the run before it.
REQUEST = """
    SELECT messages.message FROM messages JOIN runs ON runs.id = messages.run
    WHERE messages.session = ? AND messages.run = ? AND messages.role = 'user'
    ORDER BY messages.at IS DISTINCT FROM runs.created, position LIMIT 1
"""
BY_WORDS = """
    SELECT position, message FROM messages WHERE session = ? AND words @@ CAST(CAST(? AS text) AS tsquery)
    ORDER BY ts_rank(words, CAST(CAST(? AS text) AS tsquery)) DESC, position DESC LIMIT ?
"""
WITH_WORDS = f"""
    SELECT session, position, number FROM messages WHERE words @@ CAST(CAST(? AS text) AS tsquery)
    ORDER BY number DESC LIMIT {MOST_MATCHES}
"""
MATCHES = """
    SELECT id FROM memories WHERE owner = ? AND searched @@ CAST(CAST(? AS text) AS tsquery)
    ORDER BY ts_rank(searched, CAST(CAST(? AS text) AS tsquery)) DESC, number DESC LIMIT ?
"""


def with_words(words: list[str]) -> Query:
    return WITH_WORDS, (all_of([phrase(word, prefix=is_prefix(word)) for word in words]),)


class PostgresSessions(SqlSessions, SqlMemories):
    _request = REQUEST

    async def find_sessions(self, principal: str, query: str, limit: int) -> list[FoundSession]:
        return best_found(await self._each(*sessions_with(principal, query, limit, with_words)), query, limit)

    async def search(self, session: str, query: str, limit: int) -> list[tuple[int, Message]]:
        words = words_of(query)
        wanted = any_of(phrase(word, prefix=True) for word in words)
        rows = await self._all(BY_WORDS, session, wanted, wanted, limit) if wanted else []
        return await self._with_parts(session, words, rows, limit) if words else []

    async def memory_matches(self, owner: str, words: Sequence[Sequence[str]], limit: int) -> list[str]:
        texts = [" ".join(one) for one in words]
        wanted = any_of(phrase(text, prefix=text.endswith("*")) for text in texts)
        return [one for (one,) in await self._all(MATCHES, owner, wanted, wanted, limit)] if wanted else []
