"""The watchdog of the event loop: it names a callback that holds the loop, and nothing else, with both loops."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import cast

import pytest
import uvloop

from app.metrics.loop_watchdog import MOST_FRAMES, ROOT, Held, LoopWatchdog, callback_of, stack_of
from app.metrics.recorder import Metrics
from app.metrics.table import LOOP_HELD_SECONDS
from app.runs.composition.loop_watch import MOST_LOGGED, HeldLoop, held_loop, reports, watched_loop
from routes.cli.doctor.finding import State
from routes.cli.doctor.folders import running_server

pytestmark = pytest.mark.anyio
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
HELD = Held(0.3, "callback", ("app/one.py:1 one", "app/two.py:2 two"))
LIMIT_S = 30.0  # until a report has come


def burn(cpu_s: float) -> None:
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        pass


def backtrack(_: float) -> None:
    """Hold the interpreter in one call into C."""
    started = time.thread_time()
    for length in range(18, 40):
        if time.thread_time() - started < 0.2:
            re.match(r"(a+)+$", "a" * length + "c")


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("work", [burn, backtrack])
def test_a_callback_that_holds_the_loop_is_named(loop: str, work: Callable[[float], None]) -> None:
    found = list[Held]()

    async def hold() -> None:
        reported = asyncio.Event()
        running = asyncio.get_running_loop()

        def report(held: Held) -> None:
            found.append(held)
            running.call_soon_threadsafe(reported.set)

        with LoopWatchdog(report, idle_every_s=0.01).watching():
            async with asyncio.timeout(LIMIT_S):
                while not found:  # a watchdog that had no core at that time has seen nothing
                    work(0.4)
                    await asyncio.wait([asyncio.create_task(reported.wait())], timeout=0.1)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(hold())
    assert found[0].cause == "callback"
    assert found[0].cpu_s >= 0.05
    assert any(place.endswith(f" {work.__name__}") for place in found[0].stack), found


@pytest.mark.parametrize("loop", LOOPS)
def test_many_short_callbacks_do_not_add_up(loop: str) -> None:
    found = list[Held]()

    async def work() -> None:
        with LoopWatchdog(found.append, limit_s=0.2).watching():
            for _ in range(150):
                asyncio.get_running_loop().call_soon(burn, 0.002)  # all in one turn
            await asyncio.sleep(0)
            for _ in range(150):
                burn(0.002)
                await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(work())
    assert found == []


def test_a_stack_is_of_our_innermost_frames() -> None:
    seen = list[tuple[str, ...]]()
    functions: dict[str, Callable[[Callable[[int], None], int], None]] = {}
    code = "def recurse(end, depth):\n    recurse(end, depth - 1) if depth else list(map(end, [0]))\n"
    exec(compile(code, f"{ROOT}app/imagined.py", "exec"), functions)
    functions["recurse"](lambda _: seen.append(stack_of(sys._getframe())), 20)
    assert seen == [("app/imagined.py:2 recurse",) * MOST_FRAMES]


class _Ending:
    """A frame that returns to its caller while it is looked at."""

    def __init__(self, *callers: FrameType | None) -> None:
        self._callers = [*callers]

    @property
    def f_back(self) -> FrameType | None:
        return self._callers.pop(0)


def test_a_callback_may_end_while_its_stack_is_read() -> None:
    caller, ending = sys._getframe(), _Ending(sys._getframe(), None)
    assert callback_of(cast("FrameType", ending)) is callback_of(caller)
    ended = cast("FrameType", _Ending(None))
    assert callback_of(ended) is ended


async def test_reports_are_counted_and_few_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    report = reports(metrics, tmp_path)
    with caplog.at_level(logging.WARNING):
        for number in range(20):
            report(Held(0.1 + number % 3, "callback", HELD.stack))
    await asyncio.sleep(0)
    assert sum(metrics.histogram(LOOP_HELD_SECONDS, "callback").counts) == 20
    assert len(caplog.records) == MOST_LOGGED
    assert caplog.messages[0] == "The event loop was held for 100 ms of CPU: app/one.py:1 one < app/two.py:2 two"
    assert held_loop(tmp_path, os.getpid() + 1) is None, "another server's"
    assert held_loop(tmp_path, os.getpid()) == HeldLoop(os.getpid(), 20, 2.1, "app/one.py:1 one < app/two.py:2 two")
    finding = running_server(tmp_path, os.getpid())
    assert (finding.state, "held 20 times, at most 2100 ms of CPU: app/" in finding.found) == (State.WARNING, True)
    with watched_loop(metrics, tmp_path):
        assert held_loop(tmp_path, os.getpid()) is None, "of an earlier server"
