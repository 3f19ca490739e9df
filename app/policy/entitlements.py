"""Things of a person that act without a request: the roles that may have each, asked at its making and at each use.

A role may be lowered in between. What is there then stays, and acts again once the role is raised.
"""

from __future__ import annotations

from enum import StrEnum

from app.storage.principals import Principal
from app.transcript.run_request import NotFound
from tools.base.rights import Role


class Kind(StrEnum):
    """The things, each named in the plural."""

    SCHEDULES = "schedules"
    TRIGGERS = "triggers"
    WEBHOOKS = "webhooks"


LEAST_ROLE = {Kind.SCHEDULES: Role.USER, Kind.TRIGGERS: Role.USER, Kind.WEBHOOKS: Role.USER}


class NotEntitled(NotFound):
    """The role of the owner does not allow it: nothing is there to act for."""


def check_entitled(principal: Principal, kind: Kind, *, guests: bool = False) -> None:
    """Check the role; `guests` may have it, too. Raises NotEntitled."""
    if principal.role.rank < LEAST_ROLE[kind].rank and not guests:
        who = f"{principal.name} is a {principal.role}"
        raise NotEntitled(f"Guests have no {kind}, and {who}. An admin can raise the role under People.")
