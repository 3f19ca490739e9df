"""Helpers: the sessions of runs that a call of another run has begun."""

from __future__ import annotations

from typing import Protocol

from app.storage.changes import Change, ChangeWriter


class HelperRow(Change, frozen=True):
    """`run` was begun in its own `session` by the `call` of `parent_run`. `depth` counts from 1."""

    session: str
    run: str
    parent_session: str
    parent_run: str
    call: str
    depth: int
    created: float


class HelperStore(ChangeWriter, Protocol):
    async def helper(self, session: str) -> HelperRow | None:
        """The helper whose session this is."""
        ...

    async def helpers(self, parent_session: str) -> list[HelperRow]:
        """The helpers of a session's runs, oldest first, without their own helpers."""
        ...

    async def lineage(self, run: str) -> list[HelperRow]:
        """The helper that this run belongs to, behind those above it; empty for a run of the person."""
        ...

    async def tainted(self, session: str) -> bool:
        """Return True if a message of the session is untrusted."""
        ...
