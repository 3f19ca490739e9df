"""Deleting sessions, the size of the database, and a proof that it can be written, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from app.storage.postgres.connections import Connection
from app.storage.postgres.runs import PostgresRuns
from app.storage.postgres.schema import TABLES
from app.storage.postgres.statements import LOCK_FILES
from app.storage.postgres.translation import translated
from app.storage.sql.retention import FORGET, IDLE_SESSIONS, OLD_KEYS

LOCK_SESSIONS = "SELECT id FROM sessions WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE"
SESSIONS = "SELECT unnest($1::text[])"
OLD_MARKS = "DELETE FROM written WHERE at < clock_timestamp() - interval '1 hour'"
SIZE = "SELECT SUM(pg_total_relation_size(to_regclass(one))) FROM unnest($1::text[]) AS one"
PROVE = "UPDATE dragoman_schema SET version = version"


def forgetting(statement: str) -> str:
    """A statement that deletes of sessions, for PostgreSQL, whose events have the numbers of runs."""
    if statement.startswith("DELETE FROM events"):
        statement = statement.replace("SELECT id FROM runs", "SELECT number FROM runs")
    return translated(statement.replace("SESSIONS", SESSIONS))


STATEMENTS = tuple(map(forgetting, FORGET))


class PostgresRetention(PostgresRuns):
    async def delete_session(self, session: str) -> None:
        async with self.transaction() as connection:
            await self._forget(connection, [session])

    async def forget_before(self, sessions: float, keys: float) -> int:
        async with self.transaction() as connection:
            await connection.execute(OLD_MARKS)
            await connection.execute(translated(OLD_KEYS), keys)
            idle = await connection.fetch(translated(IDLE_SESSIONS), sessions, sessions)
            return await self._forget(connection, [row[0] for row in idle])

    async def _forget(self, connection: Connection, sessions: Sequence[str]) -> int:
        found = await connection.fetch(LOCK_SESSIONS, sessions)
        await connection.execute(LOCK_FILES)
        for statement in STATEMENTS:
            await connection.execute(statement, *([sessions] if "$1" in statement else []))
        return len(found)

    async def sizes(self) -> dict[str, int]:
        counts = {table: (await self._all(f"SELECT COUNT(*) FROM {table}"))[0][0] for table in TABLES}
        return counts | {"bytes": int((await self._all(SIZE, TABLES))[0][0])}

    async def vacuum(self) -> None:
        async with self.named_failures(), self.connections.one() as connection:
            await connection.execute(f"VACUUM {', '.join(TABLES)}", timeout=3600)

    async def check(self) -> None:
        async with self.transaction() as connection:
            await connection.execute(PROVE)
