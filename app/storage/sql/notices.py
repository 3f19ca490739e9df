"""Targets of notifications, deliveries, and generated titles and summaries."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.notices.digests import DigestDone, DigestDue, DigestRow, DigestState, SessionRetitled
from app.storage.notices.notifications import (
    DeliveriesGivenUp,
    DeliveriesRemoved,
    DeliveryRow,
    DeliveryTried,
    TargetRemoved,
    TargetRow,
)
from app.storage.sql.columns import Write, delete, insert_once, names, select, update, upsert, write
from app.storage.sql.rows import Rows

WRITES: dict[type[Change], Write] = {
    TargetRow: upsert("notification_targets", TargetRow, "id"),
    TargetRemoved: delete("notification_targets", TargetRemoved),
    DeliveriesRemoved: delete("deliveries", DeliveriesRemoved),
    DeliveryRow: insert_once("deliveries", DeliveryRow, "id"),
    DeliveryTried: update("deliveries", DeliveryTried, "id"),
    DeliveriesGivenUp: write(
        "UPDATE deliveries SET state = 'dead', error = ?, finished = ? WHERE target = ? AND state = 'pending'",
        "error",
        "finished",
        "target",
    ),
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
TARGETS = select(TargetRow, "notification_targets", "ORDER BY created, id")
LAST = select(DeliveryRow, "deliveries", "WHERE target = ? ORDER BY created DESC, rowid DESC LIMIT ?")
ONE = select(DeliveryRow, "deliveries", "WHERE id = ?")
NEXT_DELIVERY = select(DeliveryRow, "deliveries", "WHERE target = ? AND state = 'pending' ORDER BY due, rowid LIMIT 1")
COUNTS = "SELECT target, COUNT(*) FROM deliveries WHERE state = 'pending' GROUP BY target"
FORGET = """
    DELETE FROM deliveries WHERE target = ? AND state <> 'pending' AND (
        finished < ? OR (subject LIKE 'run_%' AND (finished < ? OR id NOT IN (
            SELECT id FROM deliveries WHERE target = ? ORDER BY created DESC LIMIT ?
        )))
    )
"""
NEXT_DIGEST = select(DigestRow, "session_digests", "WHERE state = 'due' ORDER BY rowid LIMIT 1")
ASKED_DIGESTS = select(DigestRow, "session_digests", "WHERE state = 'asked'")
SUMMARIES = "SELECT session, summary FROM session_digests WHERE principal = ? AND summary <> ''"


class SqlNotices(Rows):
    async def notification_targets(self) -> list[TargetRow]:
        return await self._rows(TARGETS)

    async def deliveries(self, target: str, limit: int) -> list[DeliveryRow]:
        return await self._rows(LAST, target, limit)

    async def delivery(self, delivery: str) -> DeliveryRow | None:
        return await self._row(ONE, delivery)

    async def next_delivery(self, target: str) -> DeliveryRow | None:
        return await self._row(NEXT_DELIVERY, target)

    async def pending_deliveries(self) -> dict[str, int]:
        return dict(await self._all(COUNTS))

    async def forget_deliveries(self, target: str, keep: int, before: float, long_before: float) -> None:
        await self._change(FORGET, (target, long_before, before, target, keep))

    async def next_digest(self) -> DigestRow | None:
        return await self._row(NEXT_DIGEST)

    async def asked_digests(self) -> list[DigestRow]:
        return await self._rows(ASKED_DIGESTS)

    async def session_summaries(self, principal: str) -> dict[str, str]:
        return dict(await self._all(SUMMARIES, principal))
