"""The nodes that servers run on, and what belongs to one of them: homes of people, and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

HOME_GONE = "home_gone"  # why a run ends whose node does not come back


class WaitingRun(Struct, frozen=True):
    """A run that only servers of a node may have, of which there has been none since this Unix time, or longer."""

    id: str
    node: str
    since: float


class JobRecord(Struct, frozen=True):
    """A job as the replica that has it has written it down. `away_s`: for how long that one has been gone, if it is."""

    id: str
    node: str
    replica: str
    principal: str
    session: str
    under_way: bool
    record: str
    away_s: float | None = None


class NodeState(Struct, frozen=True):
    """`replicas` are those that are not gone; `away_s`: for how long there has been none, if that is known."""

    name: str
    replicas: int
    people: int
    waiting: int
    jobs: int
    away_s: float | None = None


class Nodes(Protocol):
    """Every method raises StoreFailed."""

    @property
    def here(self) -> str:
        """The node of this server."""

    @property
    def shares(self) -> bool:
        """All nodes have one workspace: no principal has a home."""

    async def home_of(self, principal: str) -> str | None: ...

    async def fix_home(self, principal: str) -> str:
        """The node of a principal; it is this one from now on if there was none."""

    async def replicas_at(self, node: str) -> list[str]:
        """Servers of a node that take requests, in any order."""

    async def waits_for(self, run: str) -> str | None:
        """The node that a run without an owner waits for, which has no server; None if it waits for none."""

    async def waiting(self) -> list[WaitingRun]:
        """All such runs, oldest first."""

    async def hold(self, run: str) -> bool:
        """Be the owner of such a run, to write of it; then release it. False if it waits no more."""

    async def end(self, run: str, why: str) -> bool:
        """Let any server end such a run, for this reason. False if it waits no more."""

    async def asked_of(self, run: str) -> str | None:
        """Return why a run is to end, as `end` has left it."""


class JobRecords(Protocol):
    """Every method raises StoreFailed."""

    async def keep(self, records: Sequence[JobRecord]) -> None:
        """Write records of this replica's jobs."""

    async def drop(self, jobs: Sequence[str]) -> None: ...

    async def elsewhere(self, principal: str | None = None) -> list[JobRecord]:
        """The jobs of other replicas, oldest first; those of one principal, if it is given."""

    async def forget_old(self, older_than_s: float) -> None:
        """Delete records of replicas that have been gone for so long."""
