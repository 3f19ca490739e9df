"""Memory over conversations, as the tools of a run reach it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

KINDS = ("fact", "preference", "event", "note")
FACT = KINDS[0]  # the kind of a memory that names none


class Memory(Struct, frozen=True):
    """A memory. `day` is when it was stored or changed last; `untrusted`: third parties may have brought it."""

    id: str
    kind: str
    text: str
    day: str
    untrusted: bool


class MemoryAccess(Protocol):
    """The memories of one principal, for one call. Every method raises ToolFailed."""

    async def remember(self, text: str, kind: str) -> tuple[Memory, bool]:
        """Store a memory; return it, and False if it was there already."""
        ...

    async def recall(self, query: str, limit: int) -> Sequence[Memory]:
        """Return the memories that have to do with the query, best first."""
        ...

    async def forget(self, memory: str, text: str) -> Memory:
        """Delete the memory that has this text, or begins with it."""
        ...
