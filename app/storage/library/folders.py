"""The list of conversations: folders, and what is pinned, archived or moved in it."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from app.storage.changes import Change, ChangeWriter


class FolderRow(Change, frozen=True):
    id: str
    principal: str
    name: str
    created: float


class FolderRenamed(Change, frozen=True):
    id: str
    name: str


class FolderEmptied(Change, frozen=True):
    """The conversations of a folder are in none any more."""

    folder: str


class FolderRemoved(Change, frozen=True):
    id: str


class SessionPinned(Change, frozen=True):
    id: str
    pinned: bool


class SessionArchived(Change, frozen=True):
    id: str
    archived: bool


class SessionMoved(Change, frozen=True):
    """A conversation is in another folder, or in none; nothing changes if the folder was deleted meanwhile."""

    id: str
    folder: str


class ListChanged(Change, frozen=True):
    """The list of a principal is another one: pages that show it read it again."""

    principal: str


class Shelf(Struct, frozen=True):
    """A part of a principal's list: of one folder, archived or not, or pinned only."""

    folder: str | None = None
    archived: bool = False
    pinned: bool = False


EVERYWHERE = Shelf()  # all that is not archived


class FolderStore(ChangeWriter, Protocol):
    async def folders(self, principal: str) -> list[FolderRow]:
        """The folders of a principal, by name."""

    async def folder_sizes(self, principal: str) -> dict[str, int]:
        """The number of conversations in each folder, without archived ones."""

    async def list_revision(self, principal: str) -> int:
        """A number that rises with each `ListChanged`."""
