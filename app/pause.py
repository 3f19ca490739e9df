"""The kill switch: while it is off, no model is asked and no tool is started, whoever wants it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from app.store import StateRow, Store, StoreFailed

NAME = "paused"
PAUSED, RUNNING = "yes", "no"
logger = logging.getLogger(__name__)


class Paused(Exception):
    """The server is paused. The message says how to go on."""

    def __init__(self) -> None:
        super().__init__("The server is paused. An admin can go on with POST /resume.")


class Switch:
    """Kept in the store. A state that cannot be read, or is neither yes nor no, counts as paused.

    `on_turn` is called whenever it is turned.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.paused = True
        self._wanted = True  # what was asked for last: of a pause and a resume at once, the later one holds
        self._going_on = asyncio.Event()
        self.on_turn: Callable[[], None] = _nobody_asks

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

    def _turn(self, *, paused: bool) -> None:
        self.paused = paused
        if paused:
            self._going_on.clear()
        else:
            self._going_on.set()
        self.on_turn()

    def check(self) -> None:
        """Raises Paused. Asked before each model request and each tool."""
        if self.paused:
            raise Paused


def _nobody_asks() -> None:
    """Until somebody does."""
