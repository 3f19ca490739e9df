"""The queue of a session whose runs several servers may have: its order is that of the database."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from app.replicas.peers import Replicas
from app.runs.session_queue import SessionQueue
from app.storage.runs import RunStore

LOOK_S = 1.0  # between two looks, if no message comes


class SharedQueue(SessionQueue):
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
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await moved.wait()

    def leave(self, session: str, run: str) -> None:
        super().leave(session, run)
        self._replicas.session_moved(session)
