"""The lag of the event loop: how late a timer is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from app.metrics.recorder import Observe

EVERY_S = 1.0


@contextmanager
def loop_lag(observe: Observe) -> Iterator[None]:
    """Observe the lag once a second."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def next_timer() -> asyncio.TimerHandle:
        due = loop.time() + EVERY_S
        return loop.call_at(due, fire, due)

    def fire(due: float) -> None:
        nonlocal timer
        observe(max(0.0, loop.time() - due))
        timer = next_timer()

    timer = next_timer()
    try:
        yield
    finally:
        timer.cancel()
