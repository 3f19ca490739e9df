"""The profiles that there are: those of the settings, shared ones that admins have added, and one's own.

A name is looked up in this order. A principal may have profiles of its own because no profile widens a right; what a
token is bound to is never one of those.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct
from pydantic import ValidationError

from app.core.profile_spec import ProfileSpec, SessionDefaults, checked_profile_name
from app.profiles.cascade import Applied
from app.profiles.pinned import TOKEN
from app.replicas.peers import Alone, Peers
from app.storage.audit import AuditRow
from app.storage.principals import Principal, in_use
from app.storage.profiles import SHARED, ProfileRemoved, ProfileRow, ProfileStore
from app.storage.sessions import SessionOptions, SessionStore
from app.storage.tokens import TokenStore
from tools.base.rights import Role

MOST_SHARED, MOST_OWN = 200, 50
LISTED = 20  # names in a message
SETTINGS, EVERYONE, OWN = "settings", "shared", "own"  # where profiles are from
NONE_YET = "there is none; PUT /profiles/NAME adds one"

logger = logging.getLogger(__name__)


class UnknownProfile(Exception):
    """No profile has this name. The message lists those that there are."""


class ProfileMissing(Exception):
    """The profile that a token is bound to does not exist any more."""


class ProfileForbidden(Exception):
    """The principal may not change this profile."""


class ProfileConflict(Exception):
    """A profile of the settings, one that is in use, or one too many."""


class InvalidProfile(Exception):
    """No profile can have such a name."""


class Store(ProfileStore, TokenStore, SessionStore, Protocol):
    """The stores that profiles are read from and kept in."""


class Profile(Struct, frozen=True):
    """`source`: `settings`, `shared` or `own`."""

    name: str
    spec: ProfileSpec
    source: str
    by: str = ""
    at: float | None = None


class Profiles:
    """The profiles of one server."""

    def __init__(self, of_settings: Mapping[str, ProfileSpec], store: Store, peers: Peers | None = None) -> None:
        self._of_settings = of_settings
        self._store = store
        self._sessions_choose = True  # until `load` has looked
        # Held from reading a session's options until others are stored.
        self.session_change = (peers or Alone()).changing("options")
        self._is_alone = (peers or Alone()).is_alone

    async def load(self) -> None:
        """Look if any session sets options: while none does, no run reads those of its session. Raises StoreFailed."""
        self._sessions_choose = not self._is_alone or await self._store.sets_options()

    def expect_session_options(self) -> None:
        """Read the options of sessions from now on: one is about to begin with some."""
        self._sessions_choose = True

    async def session_defaults(self, session: str | None) -> SessionDefaults | None:
        """Return the options that a session sets for its runs. Raises StoreFailed."""
        if session is None or not self._sessions_choose:
            return None
        row = await self._store.session(session)
        return defaults_of(row.options) if row else None

    async def set_session_defaults(self, session: str, defaults: SessionDefaults) -> str:
        """Return the options as they are stored. Raises StoreFailed."""
        options = defaults.model_dump_json(exclude_none=True)
        self.expect_session_options()
        await self._store.write([SessionOptions(session, options)])
        return options

    async def named(self, name: str, owner: str) -> Profile:
        """Raises UnknownProfile, StoreFailed."""
        if spec := self._of_settings.get(name):
            return Profile(name, spec, SETTINGS)
        for each in (SHARED, owner):
            if (row := await self._store.profile(each, name)) and (profile := _profile(row)):
                return profile
        raise UnknownProfile(await self._unknown(name, owner))

    async def of_token(self, name: str) -> Applied:
        """The profile that a token is bound to. Raises ProfileMissing, StoreFailed: without it no run begins."""
        try:
            return Applied(name, (await self.named(name, SHARED)).spec, TOKEN)
        except UnknownProfile:
            raise ProfileMissing(
                f"This token is bound to the profile {name}, which does not exist any more. An admin has to add it "
                f"again (`dragoman profile set {name} ...`), or to make another token."
            ) from None

    async def listed(self, owner: str) -> list[Profile]:
        """The profiles that a principal may use, each name once. Raises StoreFailed."""
        found = {name: Profile(name, spec, SETTINGS) for name, spec in self._of_settings.items()}
        owners = [SHARED] if owner == SHARED else [SHARED, owner]
        for row in await self._store.profiles(*owners):
            if row.name not in found and (profile := _profile(row)):
                found[row.name] = profile
        return sorted(found.values(), key=lambda one: one.name.lower())

    async def save(self, principal: Principal, name: str, spec: ProfileSpec, *, shared: bool, by: str) -> bool:
        """Add a profile or replace it; return True for a new one.

        Raises InvalidProfile, ProfileForbidden, ProfileConflict, StoreFailed.
        """
        try:
            checked_profile_name(name)
        except ValueError as error:
            raise InvalidProfile(f"{name[:80]!a}: {error}.") from None
        owner = self._owner(principal, name, shared=shared)
        rows = {row.name for row in await self._store.profiles(owner)}
        most = MOST_SHARED if shared else MOST_OWN
        if name not in rows and len(rows) >= most:
            kind = "shared ones" if shared else "of your own"
            raise ProfileConflict(f"There are {len(rows)} profiles, {kind}, which is the most. Delete one first.")
        if not shared and await self._store.profile(SHARED, name):
            raise ProfileConflict(f"There is a shared profile {name}: choose another name.")
        row = ProfileRow(owner, name, spec.as_json(), by, time.time())
        await self._store.write([row, _audit(row, "set")])
        return name not in rows

    async def remove(self, principal: Principal, name: str, by: str) -> None:
        """Delete a profile. Raises UnknownProfile, ProfileForbidden, ProfileConflict, StoreFailed."""
        profile = await self.named(name, principal.name)
        owner = self._owner(principal, name, shared=profile.source != OWN)
        if owner == SHARED:
            now = time.time()
            bound = [row.name for row in await self._store.tokens() if row.profile == name and in_use(row, now)]
            if bound:
                raise ProfileConflict(f"Tokens are bound to {name}: revoke {', '.join(bound[:LISTED])} first.")
        row = ProfileRow(owner, name, "{}", by, time.time())
        await self._store.write([ProfileRemoved(owner, name), _audit(row, "removed")])

    def _owner(self, principal: Principal, name: str, *, shared: bool) -> str:
        """Return the owner of a profile that the principal may change. Raises ProfileForbidden, ProfileConflict."""
        if name in self._of_settings:
            raise ProfileConflict(f"{name} is in the settings: change it there.")
        if not shared:
            return principal.name
        if principal.role is not Role.ADMIN:
            raise ProfileForbidden(f"Shared profiles are for admins; {principal.name} is a {principal.role}.")
        if principal.profile:
            raise ProfileForbidden(
                f"The token of {principal.name} is bound to the profile {principal.profile}: another admin has to "
                "change shared profiles."
            )
        return SHARED

    async def _unknown(self, name: str, owner: str) -> str:
        names = [one.name for one in await self.listed(owner)]
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        there = f"there are {', '.join(names[:LISTED])}{more}" if names else NONE_YET
        return f"There is no profile {name[:80]!a}; {there}."


def defaults_of(options: str) -> SessionDefaults | None:
    """Return the options in the row of a session: none if one of them is not allowed any more."""
    if options == "{}":
        return None
    try:
        return SessionDefaults.model_validate_json(options, strict=True)
    except ValidationError as invalid:
        logger.warning("options of a session are not valid any more: %s", invalid.errors()[0]["loc"])
        return None


def _profile(row: ProfileRow) -> Profile | None:
    try:
        spec = ProfileSpec.model_validate_json(row.spec)
    except ValidationError as invalid:  # of another version: no run may go on without what it limited
        logger.warning("the profile %s is not valid any more: %s", row.name, invalid.errors()[0]["loc"])
        return None
    return Profile(row.name, spec, OWN if row.owner else EVERYONE, row.by, row.at)


def _audit(row: ProfileRow, decision: str) -> AuditRow:
    kind = "a profile of its own" if row.owner else "a shared profile"
    return AuditRow(row.at, row.owner or row.by, f"profile {row.name}", decision, why=kind, by=row.by)
