"""Runs at a time: how many a principal has, counted in memory or over all servers that share a database."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from app.budget.kinds import SOON_S, BudgetSpent
from app.replicas.peers import Peers
from app.storage.runs import RunStore
from app.transcript.run_request import MAX_LINE

LOCK = "places"


class Places:
    """Counts the runs of one server."""

    def __init__(self) -> None:
        self._busy: dict[str, Counter[str]] = {}  # principal -> session -> its runs

    @asynccontextmanager
    async def entering(self, principal: str, session: str, limit: int | None) -> AsyncGenerator[None, None]:
        """Count a run that the block stores. It is not counted if the block raises. Raises BudgetSpent, StoreFailed.

        The limit applies to busy sessions (each runs one run at a time); all runs together, queued ones included, may
        be a full queue (MAX_LINE) more. None is no limit.
        """
        check_room(principal, session, limit, self._busy.get(principal, Counter()))
        self.enter(principal, session)
        try:
            yield
        except BaseException:
            self.leave(principal, session)
            raise

    def enter(self, principal: str, session: str) -> None:
        """Count a run that goes on."""
        self._busy.setdefault(principal, Counter())[session] += 1

    def leave(self, principal: str, session: str) -> None:
        """Stop counting a run that has ended."""
        busy = self._busy[principal]
        busy[session] -= 1
        if not busy[session]:
            del busy[session]
        if not busy:
            del self._busy[principal]

    async def busy(self, principal: str) -> Counter[str]:
        """Return the number of runs of each busy session. Raises StoreFailed."""
        return self._busy.get(principal, Counter())


class SharedPlaces(Places):
    """Counts the stored runs that have not ended, whichever server has them, and those here that are not stored.

    So a server that dies holds its places until its runs are taken over and end.
    """

    def __init__(self, store: RunStore, peers: Peers) -> None:
        super().__init__()
        self._store = store
        self._peers = peers

    @asynccontextmanager
    async def entering(self, principal: str, session: str, limit: int | None) -> AsyncGenerator[None, None]:
        if limit is None:
            async with super().entering(principal, session, None):
                yield
            return
        async with self._peers.lock(LOCK, principal):  # until the run is stored, where the next one counts it
            check_room(principal, session, limit, await self.busy(principal))
            async with super().entering(principal, session, None):
                yield

    async def busy(self, principal: str) -> Counter[str]:
        stored = Counter(row.session for row in await self._store.active_runs_of(principal))
        return stored | await super().busy(principal)


def check_room(principal: str, session: str, limit: int | None, busy: Counter[str]) -> None:
    """Raise BudgetSpent if the principal may not begin another run in the session."""
    if limit is None:
        return
    reason = ""
    if session not in busy and len(busy) >= limit:
        reason = f"has {len(busy)} active runs and may have {limit}"
    elif busy.total() >= limit + MAX_LINE:
        reason = f"has {busy.total()} active or queued runs, which is the maximum"
    if reason:
        message = f"{principal} {reason}. Wait until one ends, or cancel one."
        raise BudgetSpent("runs", message, time.time() + SOON_S)
