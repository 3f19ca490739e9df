"""A bell for each principal: rung when something has changed that their pages show, wherever it began."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Bells:
    """Rings are joined: who listens learns that something has changed since it looked last, not how often."""

    def __init__(self) -> None:
        self._listening: dict[str, set[asyncio.Event]] = {}

    @contextmanager
    def hearing(self, name: str) -> Iterator[asyncio.Event]:
        """An event that each ring sets; who has seen it clears it, and looks only then."""
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
