"""Secrets that replicas share, as they are encrypted: the keys are not the database's."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from app.storage.postgres.database import PostgresDatabase

PUT = """
    INSERT INTO sealed (kind, name, content, at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (kind, name) DO UPDATE SET content = excluded.content, at = excluded.at
"""
PUT_NEW = "INSERT INTO sealed (kind, name, content, at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
READ = "SELECT name, content FROM sealed WHERE kind = $1"
KINDS = "SELECT DISTINCT kind FROM sealed"
REMOVE = "DELETE FROM sealed WHERE kind = $1 AND name = ANY($2::text[]) AND at < $3"
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 4))"


class PostgresSealed(PostgresDatabase):
    async def sealed(self, kind: str) -> dict[str, bytes]:
        """The contents of a kind, by name."""
        async with self.named_failures(), self.connections.one() as connection:
            return {row["name"]: row["content"] for row in await connection.fetch(READ, kind)}

    async def sealed_kinds(self) -> list[str]:
        async with self.named_failures(), self.connections.one() as connection:
            return [row["kind"] for row in await connection.fetch(KINDS)]

    async def put_sealed(self, kind: str, name: str, content: bytes, *, only_new: bool = False) -> None:
        async with self.transaction() as connection:
            await connection.execute(PUT_NEW if only_new else PUT, kind, name, content, time.time())

    async def remove_sealed(self, kind: str, names: Collection[str], before: float) -> None:
        """Remove those that were put before this time."""
        async with self.transaction() as connection:
            await connection.execute(REMOVE, kind, list(names), before)

    @asynccontextmanager
    async def sealed_lock(self, kind: str, name: str) -> AsyncIterator[None]:
        """Be the only server that replaces this content."""
        async with self.named_failures(), self.connections.one() as connection, connection.transaction():
            await connection.execute(LOCK, f"{kind}\n{name}")
            yield
