"""Notifications of changes, for streams of the current state: they say that something has changed, not what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from tools.base.tasks import LeanEvent


class Notifier:
    """Subscriptions to a principal, by name, or to a session, by id.

    Notifications are coalesced: a subscriber learns that something has changed since it looked last, not how often.
    `elsewhere` is called with each name too, where other servers have subscribers.
    """

    def __init__(self) -> None:
        self.elsewhere: Callable[[str], None] | None = None
        self._subscribers: dict[str, set[asyncio.Event]] = {}
        self.closed = False

    @contextmanager
    def subscribed(self, name: str) -> Iterator[asyncio.Event]:
        """An event that each notification sets; the subscriber checks `closed`, clears it, and then reads the state."""
        changed = LeanEvent()
        others = self._subscribers.setdefault(name, set())
        others.add(changed)
        try:
            yield changed
        finally:
            others.discard(changed)
            if not others and self._subscribers.get(name) is others:
                del self._subscribers[name]

    def has(self, name: str) -> bool:
        """Return True if there are subscribers at this server."""
        return name in self._subscribers

    def notify(self, name: str) -> None:
        self.wake(name)
        if self.elsewhere:
            self.elsewhere(name)

    def wake(self, name: str) -> None:
        """Notify the subscribers of this server."""
        for changed in self._subscribers.get(name, ()):
            changed.set()

    def wake_all(self) -> None:
        for name in self._subscribers:
            self.wake(name)

    def close(self) -> None:
        """Wake all subscribers for the last time: the server stops."""
        self.closed = True
        self.wake_all()

    async def notify_around(self, name: str, work: Awaitable[None]) -> None:
        """Notify when the work begins, and when it has ended."""
        self.notify(name)
        try:
            await work
        finally:
            self.notify(name)
