"""Helpers."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.runs import HelperRow
from app.storage.sql.columns import Select, Write, insert, names, select
from app.storage.sql.rows import Rows

MOST_LEVELS = 8  # more than settings allow
WRITES: dict[type[Change], Write] = {HelperRow: insert("helpers", HelperRow)}
HELPER = select(HelperRow, "helpers", "WHERE session = ?")
OF_SESSION = select(HelperRow, "helpers", "WHERE parent_session = ? ORDER BY created, session")
# By the session of a run, so that a later run in a helper's session is found as well.
LINEAGE = Select(
    f"""
    WITH RECURSIVE above (session, level) AS (
        SELECT session, 0 FROM runs WHERE id = ?
        UNION SELECT helpers.parent_session, level + 1 FROM helpers JOIN above USING (session)
        WHERE level < {MOST_LEVELS}
    )
    SELECT {names(HelperRow, "helpers")} FROM helpers JOIN above USING (session) ORDER BY level DESC
    """,
    HelperRow,
)
TAINTED = """
    SELECT 1 FROM messages WHERE session = ? AND UNTRUSTED
    UNION ALL SELECT 1 FROM inbox JOIN runs ON runs.id = inbox.run WHERE runs.session = ? AND untrusted LIMIT 1
"""


class SqlHelpers(Rows):
    async def helper(self, session: str) -> HelperRow | None:
        return await self._row(HELPER, session)

    async def helpers(self, parent_session: str) -> list[HelperRow]:
        return await self._rows(OF_SESSION, parent_session)

    async def lineage(self, run: str) -> list[HelperRow]:
        return await self._rows(LINEAGE, run)

    _untrusted: str  # of a message

    async def tainted(self, session: str) -> bool:
        return bool(await self._all(TAINTED.replace("UNTRUSTED", self._untrusted), session, session))
