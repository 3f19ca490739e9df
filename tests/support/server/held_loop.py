"""Fail a test whose server held the event loop, by the watchdog of `serve`: no callback may have 50 ms of CPU at night.

By day three times as much is allowed: to a virtual machine, time that its host gives to others is CPU time, too.

That is on a machine like the one on which the limit was chosen: elsewhere it grows with the CPU that a fixed piece of
work needs. Not counted are the first import of a module and the first use of a pattern or a model, which happen once in
the life of a server, collections of the test runner's garbage, and what the test itself does on the same loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType

from app.metrics.loop_watchdog import FLOORS, LIMIT_S, LOOP_CODE, ROOT, Held, LoopWatchdog, Stack
from routes.server import warm_up
from tests.support.nightly import at_night
from tools.base.schemas import argument_error

WORK_S = 0.003  # of CPU for `work`, where the limit was chosen
EVERY_S = 0.01
LOOKS = 8  # at the stack, while one callback has the loop for about as long as is allowed
ONCE = ("<frozen importlib", "/re/_compiler.py", "/re/_parser.py", "/regex/_regex_core.py", "/pydantic/_internal/")

_watched = set[asyncio.AbstractEventLoop]()
_known = list[str]()


@contextmanager
def loop_not_held() -> Iterator[None]:
    """Watch the running loop, which several servers may share. Raises AssertionError at the end if one has held it."""
    loop = asyncio.get_running_loop()
    if loop in _watched or not hasattr(time, "pthread_getcpuclockid"):
        yield
        return
    stacks, found = deque[Stack](maxlen=LOOKS), list[Held]()

    def see(frame: FrameType) -> Stack:
        stacks.append(stack_of_callback(frame))
        return stacks[-1]

    def report(held: Held) -> None:
        if held.cause != "callback" or not held.stack or _known:
            return
        if not is_excused(held.stack) and not any(map(is_once, stacks)):
            found.append(held)

    _watched.add(loop)
    try:
        with LoopWatchdog(report, limit_s=limit_s(), idle_every_s=EVERY_S, stack=see).watching():
            yield
    finally:
        _watched.discard(loop)
    assert not found, "\n".join(f"the loop was held for {one.cpu_s * 1000:.0f} ms: {shown(one)}" for one in found)


@contextmanager
def may_hold(why: str) -> Iterator[None]:
    """Let servers hold the loop in this block, at a bound at which they are known to."""
    _known.append(why)
    try:
        yield
    finally:
        _known.remove(why)


def is_excused(stack: Stack) -> bool:
    """Return whether the test itself was at work, or a library that may be its client."""
    return not any(place.startswith(FLOORS) for place in stack) or any(place.startswith("tests/") for place in stack)


def is_once(stack: Stack) -> bool:
    return any(once in place for place in stack for once in ONCE)


def shown(held: Held) -> str:
    return " < ".join(held.stack[:12])


def stack_of_callback(frame: FrameType | None) -> Stack:
    """Return the places of the callback's frames, the innermost first."""
    places = list[str]()
    while frame and frame.f_code not in LOOP_CODE:
        code = frame.f_code
        places.append(f"{code.co_filename.removeprefix(ROOT)}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return tuple(places)


@cache
def limit_s() -> float:
    """Return the limit on this machine. What a server does once is done before."""
    warm_up()
    argument_error("tool", {"type": "object"}, {})
    return at_night(1, 3) * LIMIT_S * max(1.0, min(work() for _ in range(7)) / WORK_S)


def work() -> float:
    """Do what servers do, with strings, dictionaries and small objects; return its CPU."""
    started = time.thread_time()
    counted: dict[str, list[str]] = {}
    for number in range(20_000):
        word = f"word {number % 97}"
        counted.setdefault(word, []).append(word.upper())
    assert sum(map(len, counted.values())) == 20_000
    return time.thread_time() - started
