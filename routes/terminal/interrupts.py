"""Keys that stop things while a run is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from app.core.events import AgentEvent, Notice
from routes.terminal.event_client import Link
from routes.texts import text

T = TypeVar("T")


class Left(Exception):
    """The person has interrupted twice: nothing more is wanted, not even a prompt."""


class Interrupts:
    """Ctrl-C stops the run, and a second one leaves; Esc only stops it, Ctrl-\\ the latest call alone."""

    def __init__(self, link: Link, show: Callable[[AgentEvent], None]) -> None:
        self.turn: asyncio.Task[object] | None = None  # that reads the run's events
        self.leaving = False
        self._link = link
        self._show = show
        self._cancelling: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def during(self, turn: Coroutine[Any, Any, T]) -> T | None:
        """Run the turn to its end, or until a second interrupt cancels it."""
        task = self.turn = asyncio.create_task(turn)
        try:
            return await task
        except asyncio.CancelledError:
            if not self.leaving:
                raise
        return None

    def __call__(self) -> None:
        if not self.stop():
            self.leaving = True
            if self.turn:
                self.turn.cancel()

    def stop(self) -> bool:
        """Stop the run; return False where there is none, or it is being stopped."""
        if self._cancelling or self._link.run is None:
            return False
        request = self._request(text("terminal.stop.stopping"), self._link.cancel)
        self._cancelling = asyncio.get_running_loop().create_task(request)
        return True

    def stop_call(self) -> None:
        """Stop the latest call, if one runs."""
        if self._link.running and (self._stopping is None or self._stopping.done()):
            request = self._request(text("terminal.stop_call.stopping"), self._link.cancel_call)
            self._stopping = asyncio.get_running_loop().create_task(request)

    async def settle(self, limit_s: float) -> None:
        """Let a cancel that is on its way arrive: else the run would go on unwatched. Raises Left after it."""
        if self._cancelling:
            _, late = await asyncio.wait([self._cancelling], timeout=limit_s)
            if late:
                self._show(Notice("cancel", text("terminal.stop.unanswered")))
        if self.leaving:
            raise Left

    async def _request(self, stopping: str, request: Callable[[], Awaitable[str | None]]) -> None:
        self._show(Notice("cancel", stopping))
        if trouble := await request():
            self._show(Notice("cancel", trouble))
