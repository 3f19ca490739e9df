"""One run at a time in each session; the others wait in line."""

from __future__ import annotations

import asyncio

from app.replicas.peers import Replicas
from app.storage.runs import RunStore
from tools.base.tasks import wait_at_most

LOOK_S = 1.0  # between two looks, if no message comes


class SessionQueue:
    """The runs of each session in the order they came; only the first is under way."""

    def __init__(self) -> None:
        self._runs: dict[str, list[str]] = {}
        self._moved = asyncio.Event()

    def of(self, session: str) -> list[str]:
        """The runs of a session that this server has."""
        return self._runs.get(session, [])

    async def in_order(self, session: str) -> list[str]:
        """The runs of a session that have not ended, whichever server has them. Raises StoreFailed."""
        return self.of(session)

    def from_last_to(self, session: str, run: str) -> list[str]:
        """Return the runs behind `run`, the last one first, and `run` itself; none if it has left the queue."""
        runs = self.of(session)
        return runs[runs.index(run) :][::-1] if run in runs else []

    def join(self, session: str, run: str) -> None:
        self._runs.setdefault(session, []).append(run)

    async def reach(self, session: str, run: str) -> None:
        """Wait until `run` is the first."""
        while self._runs[session][0] != run:
            await self._moved.wait()

    def leave(self, session: str, run: str) -> None:
        self._runs[session].remove(run)
        if not self._runs[session]:
            del self._runs[session]
        self._moved.set()
        self._moved = asyncio.Event()


class SharedQueue(SessionQueue):
    """The queue of a session whose runs several servers may have: its order is that of the database."""

    def __init__(self, store: RunStore, replicas: Replicas) -> None:
        super().__init__()
        self._store = store
        self._replicas = replicas

    async def in_order(self, session: str) -> list[str]:
        return [row.id for row in await self._store.active_runs(session)]

    async def reach(self, session: str, run: str) -> None:
        with self._replicas.awaiting(session) as moved:
            while True:
                moved.clear()
                if run in (await self.in_order(session))[:1]:
                    return
                await wait_at_most(LOOK_S, moved)

    def leave(self, session: str, run: str) -> None:
        super().leave(session, run)
        self._replicas.session_moved(session)
