"""Standing permissions of principals, and how often each was used on each day."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from app.storage.changes import Change, ChangeWriter


class PermissionRow(Change, frozen=True):
    """Calls of `tool` that need no approval, in any conversation of its principal, until `expires`.

    `bounds` is JSON. It was given with the approval of `call` in `run`. `per_day`: the most uses in a day.
    `secrets` are those that the call was shown with.
    """

    id: str
    principal: str
    tool: str
    bounds: str
    created: float
    by: str
    run: str
    call: str
    per_day: int | None = None
    expires: float | None = None
    secrets: str = ""


class PermissionRemoved(Change, frozen=True):
    id: str


class PermissionUsesRemoved(Change, frozen=True):
    permission: str


class PermissionUses(Struct, frozen=True):
    """Counts of uses of a permission: on one day, and in all."""

    permission: str
    today: int
    total: int
    last: float


class PermissionStore(ChangeWriter, Protocol):
    async def permissions(self, principal: str) -> list[PermissionRow]:
        """Those of a principal, oldest first, expired ones included."""

    async def permission(self, id: str) -> PermissionRow | None: ...

    async def permission_uses(self, principal: str, day: str) -> list[PermissionUses]:
        """Those of a principal's permissions that were used."""

    async def use_permission(self, id: str, day: str, most: int, now: float) -> bool:
        """Count a use, unless there were `most` on that day, or a person's permission is gone or has expired."""
