"""Profiles."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.profiles import ProfileRemoved, ProfileRow
from app.storage.sql.columns import Write, delete, select, upsert
from app.storage.sql.rows import Rows

WRITES: dict[type[Change], Write] = {
    ProfileRow: upsert("profiles", ProfileRow, "owner", "name"),
    ProfileRemoved: delete("profiles", ProfileRemoved),
}
PROFILE = select(ProfileRow, "profiles", "WHERE owner = ? AND name = ?")
OF_OWNER = select(ProfileRow, "profiles", "WHERE owner = ? ORDER BY name")
SETS_OPTIONS = "SELECT 1 FROM sessions WHERE options <> '{}' LIMIT 1"


class SqlProfiles(Rows):
    async def profile(self, owner: str, name: str) -> ProfileRow | None:
        return await self._row(PROFILE, owner, name)

    async def profiles(self, *owners: str) -> list[ProfileRow]:
        return [row for owner in owners for row in await self._rows(OF_OWNER, owner)]

    async def sets_options(self) -> bool:
        return bool(await self._all(SETS_OPTIONS))
