"""Links that show a conversation, as it was when it was shared, to anyone who has them."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from app.storage.changes import Change, ChangeWriter


class ShareRow(Change, frozen=True):
    """`sha256` is the hash of the link's token, `options` and `content` are JSON."""

    id: str
    sha256: str
    session: str
    principal: str
    created: float
    updated: float
    expires: float | None
    title: str
    options: str
    content: str


class ShareEntry(Struct, frozen=True):
    """A link without its content, for lists."""

    id: str
    session: str
    principal: str
    created: float
    updated: float
    expires: float | None
    title: str
    options: str


class ShareUpdated(Change, frozen=True):
    """The link shows its conversation as it is now; nothing changes if it was revoked meanwhile."""

    id: str
    updated: float
    title: str
    content: str


class ShareRemoved(Change, frozen=True):
    id: str


class SharesExpired(Change, frozen=True):
    """All links that are over at this time are deleted."""

    expires: float


class ShareStore(ChangeWriter, Protocol):
    async def share_of(self, sha256: str) -> ShareRow | None:
        """The link of a token, by its hash."""

    async def share(self, share: str) -> ShareRow | None: ...

    async def shares(self, principal: str | None, limit: int) -> list[ShareEntry]:
        """The links of a principal, or of all, the newest first."""
