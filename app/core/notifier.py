"""Bells for those who show how things are: rung when something has changed, wherever it began."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager


class Bells:
    """A bell each: for a principal, by name, and for a session, by id.

    Rings are joined: who listens learns that something has changed since it looked last, not how often.
    """

    def __init__(self) -> None:
        self._listening: dict[str, set[asyncio.Event]] = {}
        self.closed = False

    @contextmanager
    def hearing(self, name: str) -> Iterator[asyncio.Event]:
        """An event that each ring sets; who has seen it clears it, and looks only then, at `closed` first."""
        rung = asyncio.Event()
        others = self._listening.setdefault(name, set())
        others.add(rung)
        try:
            yield rung
        finally:
            others.discard(rung)
            if not others and self._listening.get(name) is others:
                del self._listening[name]

    def ring(self, name: str) -> None:
        for rung in self._listening.get(name, ()):
            rung.set()

    def ring_all(self) -> None:
        for name in self._listening:
            self.ring(name)

    def close(self) -> None:
        """The server stops: nothing will change any more, and who listens may go."""
        self.closed = True
        self.ring_all()

    async def around(self, name: str, work: Awaitable[None]) -> None:
        """Ring when this begins, and when it has ended."""
        self.ring(name)
        try:
            await work
        finally:
            self.ring(name)
