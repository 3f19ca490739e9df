"""Requests a minute in PostgreSQL, by its clock: counted with the look-up of the token, or by themselves."""

from __future__ import annotations

from app.storage.postgres.database import PostgresDatabase
from app.storage.sql.columns import names
from app.storage.tokens import Counted, TokenRow

COUNT = "SELECT counted, left_s FROM count_one(?, true)"
COUNTED_TOKEN = f"""
    SELECT {names(TokenRow, "tokens")}, one.counted, one.left_s FROM tokens CROSS JOIN LATERAL count_one(
        ?::text || tokens.name,
        (?::boolean OR tokens.budget LIKE '%requests_per_minute%') AND tokens.revoked IS NULL
        AND COALESCE(tokens.expires > EXTRACT(EPOCH FROM clock_timestamp()), true)
    ) AS one
    WHERE tokens.sha256 = ?
"""


class PostgresRates(PostgresDatabase):
    async def count_request(self, name: str) -> Counted:
        [(counted, left_s)] = await self._all(COUNT, name)
        return Counted(counted, left_s)

    async def counted_token(self, sha256: str, prefix: str, *, always: bool) -> tuple[TokenRow | None, Counted | None]:
        for *token, counted, left_s in await self._all(COUNTED_TOKEN, prefix, always, sha256):
            return TokenRow(*token), None if counted is None else Counted(counted, left_s)
        return None, None
