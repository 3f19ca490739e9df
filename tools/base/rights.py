"""Classification of tools: risk, role, approval, outbound effects."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct


class Risk(StrEnum):
    """The strongest effect of a tool, mildest first."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"
    ADMIN = "admin"


class Role(StrEnum):
    """The role of a principal, least first."""

    GUEST = "guest"
    USER = "user"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {role: rank for rank, role in enumerate(Role)}  # looked up dozens of times in each round


Approval = Literal["mode", "never", "always"]
"""When a call needs approval: as the run's mode says, never, or always."""


class OutboundEffect(Struct, frozen=True):
    """An effect of a call outside of the workspace and the sandbox: data sent, or files for programs there.

    `what` is a sentence for the person who approves. `always`: approval is needed in every mode, and only a grant for
    exactly this call replaces it. `carries_text`: the call sends out a text that can hold anything.
    """

    what: str
    always: bool = False
    carries_text: bool = False
