"""The kill switch: while the server is paused no model request, tool, job, MCP server or follow-up is started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from app.storage.changes import StoreFailed
from app.storage.state import StateRow, StateStore
from tools.base.pause_check import Paused

NAME = "paused"
PAUSED, RUNNING = "yes", "no"
logger = logging.getLogger(__name__)


class KillSwitch:
    """Persistent, in the store. A state that cannot be read, or is neither yes nor no, counts as paused."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self.paused = True
        self._requested = True  # the last request: of a concurrent pause and resume, the later one counts
        self._unstored = False  # it is paused, whatever the store says
        self._changes = 0
        self._running = asyncio.Event()
        self._on_change: list[Callable[[], None]] = []

    def on_change(self, *calls: Callable[[], None]) -> None:
        """Make these calls, too, whenever it is set."""
        self._on_change += calls

    async def load(self) -> None:
        try:
            value = await self._store.state(NAME)
        except StoreFailed as failure:
            logger.error("the kill switch cannot be read, so the server is paused: %s", failure)
            return
        self._set(paused=value not in (None, RUNNING))

    async def reload(self) -> None:
        """Take over what another server has set. Raises StoreFailed."""
        changes = self._changes
        paused = await self._store.state(NAME) not in (None, RUNNING)
        if changes == self._changes and paused != self.paused and not self._unstored:
            self._set(paused=paused)

    async def set(self, *, paused: bool) -> None:
        """Pause at once, even if that cannot be stored; resume only once it is stored. Raises StoreFailed."""
        self._requested = paused
        if paused:
            self._unstored = True
            self._set(paused=True)
        await self._store.write([StateRow(NAME, PAUSED if paused else RUNNING)])
        self._unstored = False
        if not self._requested:
            self._set(paused=False)

    async def unpaused(self) -> None:
        """Wait while the server is paused."""
        await self._running.wait()

    @classmethod
    def always_on(cls, store: StateStore) -> KillSwitch:
        """A switch that is never paused, for programs without a server."""
        switch = cls(store)
        switch._set(paused=False)
        return switch

    def _set(self, *, paused: bool) -> None:
        self.paused = paused
        self._changes += 1
        if paused:
            self._running.clear()
        else:
            self._running.set()
        for call in self._on_change:
            call()

    def check(self) -> None:
        """Raise Paused while the server is paused; called before anything is started, on all floors."""
        if self.paused:
            raise Paused
