"""Standing permissions and their uses."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.people.permissions import PermissionRemoved, PermissionRow, PermissionUses, PermissionUsesRemoved
from app.storage.sql.columns import Select, Write, delete, insert, select
from app.storage.sql.rows import Rows

WRITES: dict[type[Change], Write] = {
    PermissionRow: insert("permissions", PermissionRow),
    PermissionRemoved: delete("permissions", PermissionRemoved),
    PermissionUsesRemoved: delete("permission_uses", PermissionUsesRemoved),
}
PERMISSION = select(PermissionRow, "permissions", "WHERE id = ?")
PERMISSIONS = select(PermissionRow, "permissions", "WHERE principal = ? ORDER BY created, id")
USES = Select(
    """
    SELECT permission, CAST(SUM(CASE WHEN day = ? THEN uses ELSE 0 END) AS BIGINT), CAST(SUM(uses) AS BIGINT), MAX(last)
    FROM permission_uses WHERE permission IN (SELECT id FROM permissions WHERE principal = ?) GROUP BY permission
    """,
    PermissionUses,
)
# One statement: two servers that race never count more than `most`. Rules have no row.
USE = """
    INSERT INTO permission_uses (permission, day, uses, last)
    SELECT CAST(? AS TEXT), CAST(? AS TEXT), 1, CAST(? AS DOUBLE PRECISION)
    WHERE substr(CAST(? AS TEXT), 1, 5) = 'rule:' OR EXISTS (
        SELECT 1 FROM permissions WHERE id = ? AND (expires IS NULL OR expires > ?)
    )
    ON CONFLICT (permission, day) DO UPDATE SET uses = permission_uses.uses + 1, last = excluded.last
    WHERE permission_uses.uses < ?
"""


class SqlPermissions(Rows):
    async def permissions(self, principal: str) -> list[PermissionRow]:
        return await self._rows(PERMISSIONS, principal)

    async def permission(self, id: str) -> PermissionRow | None:
        return await self._row(PERMISSION, id)

    async def permission_uses(self, principal: str, day: str) -> list[PermissionUses]:
        return await self._rows(USES, day, principal)

    async def use_permission(self, id: str, day: str, most: int, now: float) -> bool:
        return await self._change(USE, (id, day, now, id, id, now, most))
