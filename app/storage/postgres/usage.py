"""Limits that servers share in PostgreSQL: usage, reserved by one server after the other, and requests a minute.

Each takes one round trip; requests are counted by the clock of the database, with the look-up of the token or alone.
"""

from __future__ import annotations

from app.storage.postgres.database import PostgresDatabase
from app.storage.sql.columns import names
from app.storage.tokens import Counted, TokenRow
from app.storage.usage import Shared

RESERVE = "SELECT granted, total, reserved FROM reserve(?, ?, ?, ?, ?, ?, ?)"
LOOK = """
    SELECT COALESCE((SELECT amount FROM used WHERE principal = ? AND kind = ? AND period = ?), 0), held_of(?, ?, ?, ?)
"""
COUNT = "SELECT counted, left_s FROM count_one(?, true)"
COUNTED_TOKEN = f"""
    SELECT {names(TokenRow, "tokens")}, one.counted, one.left_s FROM tokens CROSS JOIN LATERAL count_one(
        ?::text || tokens.name,
        (?::boolean OR tokens.budget LIKE '%requests_per_minute%') AND tokens.revoked IS NULL
        AND COALESCE(tokens.expires > EXTRACT(EPOCH FROM clock_timestamp()), true)
    ) AS one
    WHERE tokens.sha256 = ?
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

    async def count_request(self, name: str) -> Counted:
        [(counted, left_s)] = await self._all(COUNT, name)
        return Counted(counted, left_s)

    async def counted_token(self, sha256: str, prefix: str, *, always: bool) -> tuple[TokenRow | None, Counted | None]:
        for *token, counted, left_s in await self._all(COUNTED_TOKEN, prefix, always, sha256):
            return TokenRow(*token), None if counted is None else Counted(counted, left_s)
        return None, None
