"""Keys that stop things while a run is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.core.events import AgentEvent, Notice
from routes.terminal.event_client import Link
from routes.texts import text


class Left(Exception):
    """The person has interrupted twice: nothing more is wanted, not even a prompt."""


class Interrupts:
    """Ctrl-C stops the run, and a second one leaves; Ctrl-\\ stops the latest call alone."""

    def __init__(self, link: Link, show: Callable[[AgentEvent], None]) -> None:
        self.turn: asyncio.Task[None] | None = None  # that reads the run's events
        self.leaving = False
        self._link = link
        self._show = show
        self._cancelling: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    def __call__(self) -> None:
        if self._cancelling is None and self._link.run is not None:
            self._cancelling = asyncio.get_running_loop().create_task(self._cancel())
        else:
            self.leaving = True
            if self.turn:
                self.turn.cancel()

    def stop_call(self) -> None:
        """Stop the latest call, if one runs."""
        if self._link.running and (self._stopping is None or self._stopping.done()):
            self._stopping = asyncio.get_running_loop().create_task(self._stop_call())

    async def settle(self, limit_s: float) -> None:
        """Let a cancel that is on its way arrive: else the run would go on unwatched. Raises Left after it."""
        if self._cancelling:
            _, late = await asyncio.wait([self._cancelling], timeout=limit_s)
            if late:
                self._show(Notice("cancel", text("terminal.stop.unanswered")))
        if self.leaving:
            raise Left

    async def _stop_call(self) -> None:
        self._show(Notice("cancel", text("terminal.stop_call.stopping")))
        if trouble := await self._link.cancel_call():
            self._show(Notice("cancel", trouble))

    async def _cancel(self) -> None:
        self._show(Notice("cancel", text("terminal.stop.stopping")))
        if trouble := await self._link.cancel():
            self._show(Notice("cancel", trouble))
