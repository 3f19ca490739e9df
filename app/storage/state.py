"""Named states of the whole server."""

from __future__ import annotations

from typing import Protocol

from app.storage.changes import Change, ChangeWriter

RESTORED = "restored"  # the name of the Unix time at which a backup became this database


class StateRow(Change, frozen=True):
    """A named state; a later one replaces it."""

    name: str
    value: str


class StateStore(ChangeWriter, Protocol):
    async def state(self, name: str) -> str | None: ...
