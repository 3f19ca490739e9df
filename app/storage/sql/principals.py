"""Access tokens of principals, and what they have used."""

from __future__ import annotations

from collections.abc import Sequence

from app.storage.changes import Change
from app.storage.sql.columns import Select, Write, insert, marks, names, select, update
from app.storage.sql.rows import Rows
from app.storage.tokens import TokenChanged, TokenCounts, TokenRevoked, TokenRow
from app.storage.usage import ModelUsage, UsageAdded

USAGE_KEY = ("principal", "month", "model", "run")
COSTS = ("cost", "estimated_cost")  # NULL without a price, beside which a price counts
COUNTED = [name for name in ModelUsage.__struct_fields__ if name not in (*USAGE_KEY, "session", *COSTS)]
# PostgreSQL adds up integers to decimals.
USAGE_SUMS = ", ".join([*(f"CAST(SUM({name}) AS BIGINT)" for name in COUNTED), *(f"SUM({name})" for name in COSTS)])
ADD_USAGE = f"ON CONFLICT ({', '.join(USAGE_KEY)}) DO UPDATE SET " + ", ".join(
    [f"{name} = spent.{name} + excluded.{name}" for name in COUNTED]
    + [f"{name} = COALESCE(spent.{name} + excluded.{name}, spent.{name}, excluded.{name})" for name in COSTS]
)
INSERT_TOKEN = insert("tokens", TokenRow)
WRITES: dict[type[Change], Write] = {
    TokenRow: INSERT_TOKEN,
    TokenRevoked: update("tokens", TokenRevoked, "sha256"),
    UsageAdded: insert(
        "used",
        UsageAdded,
        "ON CONFLICT (principal, kind, period) DO UPDATE SET amount = used.amount + excluded.amount",
    ),
    ModelUsage: insert("spent", ModelUsage, ADD_USAGE),
}
TOKENS = select(TokenRow, "tokens", "ORDER BY created")
TOKEN = select(TokenRow, "tokens", "WHERE sha256 = ?")
TOKEN_COUNTS = Select(
    """
    SELECT COUNT(*), COUNT(revoked),
        COUNT(CASE WHEN revoked IS NULL AND disabled_at IS NULL AND (expires IS NULL OR expires > ?) THEN 1 END),
        CAST(COALESCE(SUM(version), 0) AS BIGINT)
    FROM tokens
    """,
    TokenCounts,
)
# One token in use per name, and one spelling of a name for ever: it is a folder, too.
ADD_TOKEN = f"""
    INSERT INTO tokens ({names(TokenRow)}) SELECT {marks(TokenRow)} WHERE NOT EXISTS (
        SELECT 1 FROM tokens WHERE LOWER(name) = LOWER(?)
        AND (name <> ? OR (revoked IS NULL AND (expires IS NULL OR expires > ?)))
    )
"""
# An admin stays: one whose token is in use, and never expires or not before the others are changed.
CHANGE_TOKEN = """
    UPDATE tokens SET role = ?, disabled_at = ?, version = ? WHERE sha256 = ? AND version = ? AND revoked IS NULL
    AND ((CAST(? AS TEXT) = 'admin' AND CAST(? AS DOUBLE PRECISION) IS NULL) OR EXISTS (
        SELECT 1 FROM tokens AS others WHERE others.sha256 <> ? AND others.role = 'admin' AND others.revoked IS NULL
        AND others.disabled_at IS NULL AND (others.expires IS NULL OR others.expires > ?)))
"""
USAGE_OF_SESSION = select(ModelUsage, "spent", "WHERE session = ?")


class SqlPrincipals(Rows):
    async def tokens(self) -> list[TokenRow]:
        return await self._rows(TOKENS)

    async def token(self, sha256: str) -> TokenRow | None:
        return await self._lookup(TOKEN, sha256)

    async def token_counts(self, now: float) -> TokenCounts:
        counts = await self._lookup(TOKEN_COUNTS, now)
        assert counts  # a count has a row of any table
        return counts

    async def change_token(self, change: TokenChanged, now: float, also: Sequence[Change] = ()) -> bool:
        key = (change.sha256, change.version - 1)
        rights = (change.role, change.disabled_at)
        return await self._change(CHANGE_TOKEN, (*rights, change.version, *key, *rights, change.sha256, now), also)

    async def add_token(self, row: TokenRow, also: Sequence[Change] = ()) -> bool:
        values = (*INSERT_TOKEN.values(row), row.name, row.name, row.created)
        return await self._change(ADD_TOKEN, values, also)

    async def usage(self, principal: str, kind: str, period: str) -> float:
        query = "SELECT amount FROM used WHERE principal = ? AND kind = ? AND period = ?"
        rows = await self._all(query, principal, kind, period)
        return float(rows[0][0]) if rows else 0.0

    async def spent(self, *, principal: str | None = None, month: str | None = None) -> list[ModelUsage]:
        conditions = {"principal = ?": principal, "month = ?": month}
        given = {condition: value for condition, value in conditions.items() if value is not None}
        query = f"""
            SELECT principal, month, model, '', '', {USAGE_SUMS} FROM spent WHERE {" AND ".join(given) or "1 = 1"}
            GROUP BY principal, month, model ORDER BY month DESC, principal, model
        """
        return [ModelUsage(*row) for row in await self._all(query, *given.values())]

    async def spent_by_runs(self, session: str) -> list[ModelUsage]:
        return await self._rows(USAGE_OF_SESSION, session)
