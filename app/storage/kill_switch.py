"""The kill switch: while the server is paused nothing begins: no model request, tool, job, MCP server, follow-up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from app.storage.changes import StoreFailed
from app.storage.state import StateRow, StateStore
from tools.base.pause_check import Paused

NAME = "paused"
PAUSED, RUNNING = "yes", "no"
logger = logging.getLogger(__name__)


class KillSwitch:
    """Kept in the store. A state that cannot be read, or is neither yes nor no, counts as paused.

    Each of `on_turn` is called whenever it is turned.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.paused = True
        self._wanted = True  # what was asked for last: of a pause and a resume at once, the later one holds
        self._going_on = asyncio.Event()
        self.on_turn: Sequence[Callable[[], None]] = ()

    async def load(self) -> None:
        try:
            value = await self._store.state(NAME)
        except StoreFailed as failure:
            logger.error("the kill switch cannot be read, so the server is paused: %s", failure)
            return
        self._turn(paused=value not in (None, RUNNING))

    async def set(self, *, paused: bool) -> None:
        """Pausing holds at once, even if it cannot be stored; going on only once it is. Raises StoreFailed."""
        self._wanted = paused
        if paused:
            self._turn(paused=True)
        await self._store.write([StateRow(NAME, PAUSED if paused else RUNNING)])
        if not self._wanted:
            self._turn(paused=False)

    async def unpaused(self) -> None:
        """Wait while the server is paused."""
        await self._going_on.wait()

    @classmethod
    def always_on(cls, store: StateStore) -> KillSwitch:
        """One that nobody turns, for what runs without a server."""
        switch = cls(store)
        switch._turn(paused=False)
        return switch

    def _turn(self, *, paused: bool) -> None:
        self.paused = paused
        if paused:
            self._going_on.clear()
        else:
            self._going_on.set()
        for turned in self.on_turn:
            turned()

    def check(self) -> None:
        """Raises Paused. Whatever would begin something asks this first, on all floors."""
        if self.paused:
            raise Paused
