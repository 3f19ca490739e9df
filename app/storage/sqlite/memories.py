"""The words of memories in SQLite's full text index."""

from __future__ import annotations

from collections.abc import Sequence

from app.storage.sql.memories import SqlMemories

MATCHES = """
    SELECT memories.id FROM memory_words JOIN memories ON memories.number = memory_words.rowid
    WHERE memory_words MATCH ? AND memories.owner = ?
    ORDER BY bm25(memory_words, 0.0, 1.0), memories.number DESC LIMIT ?
"""


class SQLiteMemories(SqlMemories):
    async def memory_matches(self, owner: str, words: Sequence[Sequence[str]], limit: int) -> list[str]:
        if not words:
            return []
        matched = f"owner : {_phrase([owner])} AND words : ({' OR '.join(map(_phrase, words))})"
        return [one for (one,) in await self._all(MATCHES, matched, owner, limit)]


def _phrase(words: Sequence[str]) -> str:
    """For MATCH: the words one behind the other, literally; the last may be the beginning of one if it ends in `*`."""
    text = " ".join(words)
    prefix = text.endswith("*")
    doubled = text.removesuffix("*").replace('"', '""')
    return f'"{doubled}"{" *" if prefix else ""}'
