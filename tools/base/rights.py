"""The words in which tools are classified."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Risk(StrEnum):
    """What a tool can do to the world, mildest first."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"
    ADMIN = "admin"


class Role(StrEnum):
    """Who somebody is to this server, least first."""

    GUEST = "guest"
    USER = "user"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {role: rank for rank, role in enumerate(Role)}  # asked for dozens of times in each round


Approval = Literal["mode", "never", "always"]
"""Whether a call asks a person first: as the run's mode says, not even where the mode would, or each time."""


@dataclass(frozen=True, slots=True)
class OutboundEffect:
    """What a call would send out of the workspace and the sandbox, or leave for programs outside of them.

    `what` is a sentence for people. `always`: it asks in every mode, and of all grants only one for exactly this call
    counts.
    """

    what: str
    always: bool = False
