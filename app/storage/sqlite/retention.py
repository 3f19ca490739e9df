"""Deleting sessions and what belongs to them, and the size of the file, in SQLite."""

from __future__ import annotations

from app.storage.sqlite.columns import names
from app.storage.sqlite.principals import ADD_USAGE, USAGE_SUMS
from app.storage.sqlite.runs import SQLiteRuns
from app.storage.sqlite.schema import SCHEMA, TABLES
from app.storage.usage import ModelUsage

# A month's sums outlive its runs: they become those of no run.
KEEP_USAGE = f"""
    INSERT INTO spent ({names(ModelUsage)})
    SELECT principal, month, model, '', '', {USAGE_SUMS} FROM spent WHERE session IN (SESSIONS)
    GROUP BY principal, month, model {ADD_USAGE}
"""
DOCUMENTS = "SELECT id FROM documents WHERE session IN (SESSIONS)"
# Keys of deliveries and of times, which must not begin another run because the session of theirs was deleted.
LASTING = " OR ".join(f"key GLOB '{kind}' || char(10) || '*'" for kind in ("trigger", "schedule"))
# Deletes a session with all that belongs to it; SESSIONS stands for a query of the sessions' ids.
FORGET = (
    "DELETE FROM events WHERE run IN (SELECT id FROM runs WHERE session IN (SESSIONS))",
    "DELETE FROM inbox WHERE run IN (SELECT id FROM runs WHERE session IN (SESSIONS))",
    f"DELETE FROM idempotency WHERE NOT ({LASTING}) AND run IN (SELECT id FROM runs WHERE session IN (SESSIONS))",
    "DELETE FROM messages WHERE session IN (SESSIONS)",
    "DELETE FROM approvals WHERE session IN (SESSIONS)",
    "DELETE FROM session_labels WHERE session IN (SESSIONS)",
    "DELETE FROM grants WHERE session IN (SESSIONS)",
    "DELETE FROM summaries WHERE session IN (SESSIONS)",
    "DELETE FROM results WHERE session IN (SESSIONS)",
    f"DELETE FROM document_versions WHERE document IN ({DOCUMENTS})",
    f"DELETE FROM document_suggestions WHERE document IN ({DOCUMENTS})",
    "DELETE FROM documents WHERE session IN (SESSIONS)",
    "DELETE FROM session_digests WHERE session IN (SESSIONS)",
    "DELETE FROM deliveries WHERE session IN (SESSIONS)",
    "DELETE FROM helpers WHERE session IN (SESSIONS)",
    KEEP_USAGE,
    "DELETE FROM spent WHERE session IN (SESSIONS)",
    "DELETE FROM session_files WHERE session IN (SESSIONS)",
    "DELETE FROM files WHERE sha256 NOT IN (SELECT sha256 FROM session_files)",
    "DELETE FROM sessions WHERE id IN (SESSIONS)",
    "DELETE FROM runs WHERE session NOT IN (SELECT id FROM sessions)",
)
OLD_KEYS = "DELETE FROM idempotency WHERE created < ? AND (body <> '' OR run NOT IN (SELECT id FROM runs))"
ONE_SESSION = "?"
IDLE_SESSIONS = """
    SELECT id FROM sessions WHERE created < ? AND NOT EXISTS
    (SELECT 1 FROM runs WHERE runs.session = sessions.id AND COALESCE(runs.ended, 9e99) >= ?)
"""
# The full text index only marks words as deleted until it is merged; VACUUM copies it as it is.
MERGE_INDEX = "INSERT INTO message_words (message_words) VALUES ('optimize')"


class SQLiteRetention(SQLiteRuns):
    async def delete_session(self, session: str) -> None:
        await self._settle()  # batches hold words of all sessions
        async with self._transaction():
            await self._forget(ONE_SESSION, session)

    async def forget_before(self, sessions: float, keys: float) -> int:
        await self._settle()
        async with self._transaction():
            await self._writer.execute(OLD_KEYS, (keys,))
            return await self._forget(IDLE_SESSIONS, sessions, sessions)

    async def _forget(self, query: str, *values: object) -> int:
        deleted = 0
        for statement in FORGET:
            cursor = await self._writer.execute(
                statement.replace("SESSIONS", query), values if "SESSIONS" in statement else ()
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
        async with self._transaction():
            await self._writer.execute("BEGIN IMMEDIATE")
            await self._writer.execute(f"PRAGMA user_version = {len(SCHEMA)}")  # writes a page, changes nothing
