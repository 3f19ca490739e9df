"""Usage in PostgreSQL: reserved in one round trip, and by one server after the other."""

from __future__ import annotations

from app.storage.postgres.database import PostgresDatabase
from app.storage.usage import Shared

RESERVE = "SELECT granted, total, reserved FROM reserve(?, ?, ?, ?, ?, ?, ?)"
LOOK = """
    SELECT COALESCE((SELECT amount FROM used WHERE principal = ? AND kind = ? AND period = ?), 0), held_of(?, ?, ?, ?)
"""


class PostgresUsage(PostgresDatabase):
    @property
    def replica(self) -> str:
        return self.fenced_by or ""

    async def shared_usage(self, principal: str, kind: str, period: str) -> Shared:
        budget = principal, kind, period
        [(total, reserved)] = await self._all(LOOK, *budget, self.replica, *budget)
        return Shared(total - reserved, reserved)

    async def reserve(
        self, principal: str, kind: str, period: str, *, least: float, most: float, limit: float
    ) -> Shared:
        """If the connection is lost meanwhile it is done again: then the budget may lose what was reserved first."""
        budget = principal, kind, period
        [(granted, total, reserved)] = await self._all(
            RESERVE, self.replica, *budget, float(least), float(most), float(limit)
        )
        return Shared(total - reserved, reserved, granted)
