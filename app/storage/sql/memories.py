"""Memories, their vectors and the jobs that extract them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from app.storage.changes import Change
from app.storage.memories import (
    ALL,
    MemoriesDeleted,
    MemoriesOfSessionDeleted,
    MemoryDeleted,
    MemoryFilter,
    MemoryJob,
    MemoryJobDone,
    MemoryRow,
    Unembedded,
    VectorRow,
)
from app.storage.sql.columns import Select, Write, delete, marks, names, select, upsert, write
from app.storage.sql.rows import Rows

# Only while its memory is there: it may have been deleted while it was embedded.
_VECTOR = f"""
    INSERT INTO memory_vectors ({names(VectorRow)})
    SELECT {marks(VectorRow)} WHERE EXISTS (SELECT 1 FROM memories WHERE id = ? AND digest = ?)
    ON CONFLICT (memory) DO UPDATE SET
        digest = excluded.digest, embedder = excluded.embedder, vector = excluded.vector
"""
WRITES: dict[type[Change], Write] = {
    MemoryRow: upsert("memories", MemoryRow, "id"),
    MemoryDeleted: delete("memories", MemoryDeleted),
    MemoriesOfSessionDeleted: delete("memories", MemoriesOfSessionDeleted),
    MemoriesDeleted: delete("memories", MemoriesDeleted),
    VectorRow: write(_VECTOR, "memory", "owner", "digest", "embedder", "vector", "memory", "digest"),
    MemoryJob: upsert("memory_jobs", MemoryJob, "run"),
    MemoryJobDone: delete("memory_jobs", MemoryJobDone),
}
MEMORY = select(MemoryRow, "memories", "WHERE id = ?")
SAME = select(MemoryRow, "memories", "WHERE owner = ? AND digest = ?")
FILTER = "owner = ? AND session = COALESCE(?, session) AND untrusted = COALESCE(?, untrusted)"
LISTED = select(MemoryRow, "memories", f"WHERE {FILTER} ORDER BY updated DESC, id DESC LIMIT ?")
BEHIND = select(
    MemoryRow,
    "memories",
    f"""
    WHERE {FILTER} AND (updated, id) < (SELECT updated, id FROM memories WHERE id = ?)
    ORDER BY updated DESC, id DESC LIMIT ?
    """,
)
VECTORS = "SELECT memory, vector FROM memory_vectors WHERE owner = ? AND embedder = ?"
UNEMBEDDED = Select(
    """
    SELECT id, digest, text FROM memories WHERE owner = ?
    AND NOT EXISTS (SELECT 1 FROM memory_vectors WHERE memory = memories.id AND embedder = ?)
    AND NOT EXISTS (SELECT 1 FROM json_each(labels) WHERE value IN (SELECT value FROM json_each(?)))
    ORDER BY number LIMIT ?
    """,
    Unembedded,
)
JOBS = select(MemoryJob, "memory_jobs", "ORDER BY created, run LIMIT ?")


class SqlMemories(Rows):
    async def memory(self, memory: str) -> MemoryRow | None:
        return await self._row(MEMORY, memory)

    async def memories(
        self, owner: str, limit: int, before: str | None = None, only: MemoryFilter = ALL
    ) -> list[MemoryRow]:
        query, behind = (BEHIND, (before,)) if before else (LISTED, ())
        return await self._rows(query, *_filtered(owner, only), *behind, limit)

    async def memories_named(self, owner: str, ids: Sequence[str]) -> list[MemoryRow]:
        named = f"WHERE owner = ? AND id IN ({', '.join('?' * len(ids))})"
        return await self._rows(select(MemoryRow, "memories", named), owner, *ids)

    async def same_memory(self, owner: str, digest: str) -> MemoryRow | None:
        return await self._row(SAME, owner, digest)

    async def memory_count(self, owner: str, only: MemoryFilter = ALL) -> int:
        [(count,)] = await self._all(f"SELECT COUNT(*) FROM memories WHERE {FILTER}", *_filtered(owner, only))
        return int(count)

    async def memory_vectors(self, owner: str, embedder: str) -> list[tuple[str, bytes]]:
        return await self._all(VECTORS, owner, embedder)

    async def unembedded_memories(
        self, owner: str, embedder: str, limit: int, without: Sequence[str] = ()
    ) -> list[Unembedded]:
        return await self._rows(UNEMBEDDED, owner, embedder, json.dumps(list(without)), limit)

    async def memory_jobs(self, limit: int) -> list[MemoryJob]:
        return await self._rows(JOBS, limit)

    async def memory_job_count(self) -> int:
        [(count,)] = await self._all("SELECT COUNT(*) FROM memory_jobs")
        return int(count)


def _filtered(owner: str, only: MemoryFilter) -> tuple[object, ...]:
    return owner, only.session, only.untrusted
