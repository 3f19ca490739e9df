"""Deleting sessions, and the size of the file, in SQLite."""

from __future__ import annotations

from app.storage.sql.retention import FORGET, IDLE_SESSIONS, OLD_KEYS
from app.storage.sqlite.runs import SQLiteRuns
from app.storage.sqlite.schema import SCHEMA, TABLES

ONE_SESSION = "?"
# The full text index only marks words as deleted until it is merged; VACUUM copies it as it is.
MERGE_INDEX = "INSERT INTO message_words (message_words) VALUES ('optimize')"


class SQLiteRetention(SQLiteRuns):
    async def delete_session(self, session: str) -> None:
        await self.settle()  # batches hold words of all sessions
        async with self._transaction():
            await self._forget(ONE_SESSION, session)

    async def forget_before(self, sessions: float, keys: float) -> int:
        await self.settle()
        async with self._transaction():
            await self._writer.execute(OLD_KEYS, (keys,))
            return await self._forget(IDLE_SESSIONS, sessions, sessions)

    async def _forget(self, query: str, *values: object) -> int:
        deleted = 0
        for statement in FORGET:
            cursor = await self._writer.execute(
                statement.replace("SESSIONS", query), values * statement.count("SESSIONS")
            )
            deleted = cursor.rowcount if statement.startswith("DELETE FROM sessions") else deleted
        return deleted

    async def sizes(self) -> dict[str, int]:
        counts = {table: (await self._all(f"SELECT COUNT(*) FROM {table}"))[0][0] for table in TABLES}
        pages, size = (await self._all("PRAGMA page_count"))[0][0], (await self._all("PRAGMA page_size"))[0][0]
        return counts | {"bytes": pages * size}

    async def vacuum(self) -> None:
        async with self._one_writer, self._named_failures():
            await self._catch_up_now()
            await self._writer.execute(MERGE_INDEX)
            await self._writer.commit()
            await self._writer.execute("VACUUM")

    async def check(self) -> None:
        self._check_files(at_once=True)
        async with self._transaction():
            await self._writer.execute("BEGIN IMMEDIATE")
            await self._writer.execute(f"PRAGMA user_version = {len(SCHEMA)}")  # writes a page, changes nothing
