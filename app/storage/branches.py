"""Branches: sessions that have the beginning of another one.

A branch has messages, summaries and documents of its own, copied as they were at the cut, because it changes them. The
logs of the runs before the cut are not copied: they stay with the session that had them, its parts name them, and they
outlive that session for as long as a branch has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from app.storage.changes import Change
from app.storage.runs import RunRow

ALWAYS = 9e99  # as a time: of all runs


class BranchRow(Change, frozen=True):
    """`after` is the last run before the cut, empty for a cut before the first. `tree`: where all branches begin."""

    session: str
    tree: str
    parent: str
    after: str
    created: float


class Branch(Struct, frozen=True):
    """A branch that exists, and when it was used last. Without a `parent` it is the session that all began with."""

    session: str
    parent: str
    after: str
    updated: float


class BranchPart(Change, frozen=True):
    """Runs of `origin`, created until then, that a session has too; `place` counts from 0, oldest first."""

    session: str
    place: int
    origin: str
    until: float


class RunResults(Struct, frozen=True):
    """Results of `calls` of the run `origin`, which the run `run` of a branch has, too."""

    origin: str
    run: str
    calls: Sequence[str]


class Fork(Struct, frozen=True):
    """A branch to be made of `row.parent`.

    `used` is when the last run before the cut ended: a branch in which nothing has run yet is not the one used last.
    `position` is that of the first message behind the cut, `before` the time of the first run behind it, or of the
    first change of a document. `also` are changes of the same transaction.
    """

    row: BranchRow
    parts: Sequence[BranchPart]
    position: int
    before: float
    used: float
    results: RunResults | None = None
    also: Sequence[Change] = ()


class BranchStore(Protocol):
    async def fork(self, fork: Fork) -> bool:
        """Make a branch, all of it or nothing; return False if the parent was deleted."""

    async def documents_changed(self, run: RunRow, calls: Sequence[str]) -> float:
        """Return when calls of a run, but these, or later runs first changed a document of its session."""

    async def parts(self, session: str) -> Sequence[tuple[str, float]]:
        """The sessions whose runs a session has, oldest first, each with the time until which; itself is the last."""

    async def holds_run(self, session: str, run: RunRow) -> bool:
        """Return True if a run is one of the session, or one before the cut of the branch."""

    async def branch(self, session: str) -> BranchRow | None:
        """The branch that a session is; of the session that all began with one without a parent."""

    async def branches(self, tree: str) -> list[Branch]:
        """The branches of a tree, oldest first, the session that all began with included while it exists."""

    async def other_branches(self, sessions: Sequence[str]) -> dict[str, list[str]]:
        """The other branches of each of the sessions that has some."""

    async def position_behind(self, session: str, run: str | None, before: Sequence[str]) -> int:
        """The position of the message that began a run, or behind all messages of the runs before it."""
