"""Generated titles and summaries."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.notices.digests import DigestDone, DigestDue, DigestRow, DigestState, SessionRetitled
from app.storage.sql.columns import Write, names, select, update, write
from app.storage.sql.rows import Rows

WRITES: dict[type[Change], Write] = {
    DigestDue: write(
        f"""
        INSERT INTO session_digests ({names(DigestRow)}) VALUES (?, ?, ?, 'due', 0, '', '')
        ON CONFLICT (session) DO UPDATE SET run = excluded.run, state = 'due'
        """,
        "session",
        "principal",
        "run",
    ),
    DigestState: update("session_digests", DigestState, "session"),
    DigestDone: update("session_digests", DigestDone, "session"),
    SessionRetitled: write("UPDATE sessions SET title = ? WHERE id = ? AND title = ?", "title", "id", "before"),
}
NEXT = select(DigestRow, "session_digests", "WHERE state = 'due' ORDER BY rowid LIMIT 1")
ASKED = select(DigestRow, "session_digests", "WHERE state = 'asked'")
SUMMARIES = "SELECT session, summary FROM session_digests WHERE principal = ? AND summary <> ''"


class SqlDigests(Rows):
    async def next_digest(self) -> DigestRow | None:
        return await self._row(NEXT)

    async def asked_digests(self) -> list[DigestRow]:
        return await self._rows(ASKED)

    async def session_summaries(self, principal: str) -> dict[str, str]:
        return dict(await self._all(SUMMARIES, principal))
