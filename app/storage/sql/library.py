"""Folders, pins, the archive, and links to conversations."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.library.folders import (
    FolderEmptied,
    FolderRemoved,
    FolderRenamed,
    FolderRow,
    ListChanged,
    SessionArchived,
    SessionMoved,
    SessionPinned,
)
from app.storage.library.shares import ShareEntry, ShareRemoved, ShareRow, SharesExpired, ShareUpdated
from app.storage.sql.columns import Select, Write, delete, insert, select, update, write
from app.storage.sql.rows import Rows
from app.storage.sql.search import OF_PEOPLE

WRITES: dict[type[Change], Write] = {
    FolderRow: insert("folders", FolderRow),
    FolderRenamed: update("folders", FolderRenamed, "id"),
    FolderEmptied: write("UPDATE sessions SET folder = '' WHERE folder = ?", "folder"),
    FolderRemoved: delete("folders", FolderRemoved),
    SessionPinned: update("sessions", SessionPinned, "id"),
    SessionArchived: update("sessions", SessionArchived, "id"),
    SessionMoved: write(
        "UPDATE sessions SET folder = ? WHERE id = ? AND (? = '' OR EXISTS (SELECT 1 FROM folders WHERE id = ?))",
        "folder",
        "id",
        "folder",
        "folder",
    ),
    ListChanged: write(
        "INSERT INTO lists (principal, revision) VALUES (?, 1) "
        "ON CONFLICT (principal) DO UPDATE SET revision = lists.revision + 1",
        "principal",
    ),
    ShareRow: insert("shares", ShareRow),
    ShareUpdated: update("shares", ShareUpdated, "id"),
    ShareRemoved: delete("shares", ShareRemoved),
    SharesExpired: write("DELETE FROM shares WHERE expires <= ?", "expires"),
}
FOLDERS = select(FolderRow, "folders", "WHERE principal = ? ORDER BY name, id")
SIZES = f"""
    SELECT folder, COUNT(*) FROM sessions
    WHERE principal = ? AND folder <> '' AND NOT archived AND {OF_PEOPLE} GROUP BY folder
"""
REVISION = Select("SELECT revision FROM lists WHERE principal = ?", int)
SHARE = select(ShareRow, "shares", "WHERE id = ?")
SHARE_OF = select(ShareRow, "shares", "WHERE sha256 = ?")
NEWEST = "ORDER BY created DESC, id DESC LIMIT ?"
ENTRIES = f"SELECT {', '.join(ShareEntry.__struct_fields__)} FROM shares"
SHARES = Select(f"{ENTRIES} {NEWEST}", ShareEntry)
SHARES_OF = Select(f"{ENTRIES} WHERE principal = ? {NEWEST}", ShareEntry)


class SqlLibrary(Rows):
    async def folders(self, principal: str) -> list[FolderRow]:
        return await self._rows(FOLDERS, principal)

    async def folder_sizes(self, principal: str) -> dict[str, int]:
        return dict(map(tuple, await self._all(SIZES, principal)))

    async def list_revision(self, principal: str) -> int:
        return await self._lookup(REVISION, principal) or 0

    async def share_of(self, sha256: str) -> ShareRow | None:
        return await self._row(SHARE_OF, sha256)

    async def share(self, share: str) -> ShareRow | None:
        return await self._row(SHARE, share)

    async def shares(self, principal: str | None, limit: int) -> list[ShareEntry]:
        if principal is None:
            return await self._rows(SHARES, limit)
        return await self._rows(SHARES_OF, principal, limit)
