"""Profiles that were added at run time: shared ones of admins, and those of one principal."""

from __future__ import annotations

from typing import Protocol

from app.storage.changes import Change, ChangeWriter

SHARED = ""  # the owner of profiles that everyone may use


class ProfileRow(Change, frozen=True):
    """A later row of the same owner and name replaces it. `spec`: JSON of `app.core.profile_spec.ProfileSpec`."""

    owner: str
    name: str
    spec: str
    by: str
    at: float


class ProfileRemoved(Change, frozen=True):
    owner: str
    name: str


class ProfileStore(ChangeWriter, Protocol):
    async def profile(self, owner: str, name: str) -> ProfileRow | None: ...

    async def profiles(self, *owners: str) -> list[ProfileRow]:
        """The profiles of these owners, by owner and name."""

    async def sets_options(self) -> bool:
        """Return True if any session has options for its runs."""
