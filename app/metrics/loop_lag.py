"""The lag of the event loop: how late a timer is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from app.metrics.recorder import Observe

EVERY_S = 1.0


class _Timer:
    def __init__(self, observe: Observe) -> None:
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._set()

    def _set(self) -> None:
        self._due = self._loop.time() + EVERY_S
        self._handle = self._loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        self._observe(max(0.0, self._loop.time() - self._due))
        self._set()

    def cancel(self) -> None:
        self._handle.cancel()


@contextmanager
def loop_lag(observe: Observe) -> Iterator[None]:
    """Observe the lag once a second."""
    timer = _Timer(observe)
    try:
        yield
    finally:
        timer.cancel()
