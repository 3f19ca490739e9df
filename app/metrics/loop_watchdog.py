"""Name the callbacks that hold the event loop: a thread watches how much CPU the loop's thread has from beat to beat.

The thread reads the loop's CPU clock some times a second. While that hardly advances, the loop waits, and nothing wakes
it. Otherwise the thread sends a beat (`call_soon_threadsafe`), and looks at the stack of the loop's thread until the
loop has run it. CPU time and not the time of day counts, so a busy machine is not blamed on a callback.

A beat waits for all callbacks of a turn of the loop. So what is counted is the CPU between the looks at which one and
the same callback was running: a lower bound, to which many short callbacks do not add up. A full garbage collection
stops the loop in whichever callback it falls, and is counted as itself.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from asyncio.events import Handle
from asyncio.runners import Runner
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Literal

from msgspec import Struct

LIMIT_S = 0.05
BUSY_EVERY_S, IDLE_EVERY_S, LONGEST_EVERY_S = 0.01, 0.05, 0.4
BUSY_S, QUIET_S = 0.005, 0.001  # of CPU since the last look: more asks for a beat, less for longer intervals
MOST_FRAMES = 8
FLOORS = ("app/", "routes/", "tools/", "parsing/")
ROOT = f"{Path(__file__).parents[2]}/"
LOOP_CODE = {Handle._run.__code__, Runner.run.__code__}  # what is called by these is a callback

Cause = Literal["callback", "garbage_collection"]
Stack = tuple[str, ...]


class Held(Struct, frozen=True):
    """A callback that held the loop for this much CPU, and where it was: `file:line function`, the innermost first."""

    cpu_s: float
    cause: Cause
    stack: Stack


class LoopWatchdog:
    """Calls `report` in its own thread for each callback of the running loop that had `limit_s` of CPU."""

    def __init__(
        self,
        report: Callable[[Held], None],
        *,
        limit_s: float = LIMIT_S,
        idle_every_s: float = IDLE_EVERY_S,
        stack: Callable[[FrameType], Stack] | None = None,
    ) -> None:
        self._report = report
        self._stack = stack or stack_of
        self._limit_s = limit_s
        self._idle_every_s = idle_every_s
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._thread_id)
        self._beat_s: float | None = None  # the CPU clock when the loop ran the last beat
        self._callback = 0  # the id of the frame that was running at the last look, and not before `_since_s`
        self._since_s = self._last_s = 0.0
        self._longest = Held(0.0, "callback", ())  # since the beat was sent
        self._collected_s = self._collecting_since_s = 0.0
        self._running = threading.Lock()  # held until the end: to wait for it costs half as much as for an Event

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch until the end of the block."""
        thread = threading.Thread(target=self._watch, name="loop watchdog", daemon=True)
        gc.callbacks.append(self._on_collection)
        self._running.acquire()
        thread.start()
        try:
            yield
        finally:
            self._running.release()
            gc.callbacks.remove(self._on_collection)
            thread.join(1.0)

    def _watch(self) -> None:
        every_s, waiting, before_s, collected_s = self._idle_every_s, False, 0.0, 0.0
        while not self._running.acquire(timeout=every_s):
            now_s = time.clock_gettime(self._clock)
            if waiting and self._beat_s is None:
                self._look(now_s)
                continue
            if waiting:
                self._judge(self._beat_s or now_s, self._collected_s - collected_s)
                collected_s = self._collected_s
            worked_s = now_s - before_s
            if waiting := worked_s > BUSY_S:
                gap_s = worked_s - every_s if every_s != BUSY_EVERY_S and before_s else 0.0
                self._begin(now_s, gap_s if gap_s > 2 * self._limit_s else 0.0)
            else:
                collected_s = self._collected_s
            idle_s = self._idle_every_s if worked_s > QUIET_S else min(2 * every_s, LONGEST_EVERY_S)
            every_s, before_s = BUSY_EVERY_S if waiting else idle_s, now_s
        if waiting:
            self._judge(self._beat_s or time.clock_gettime(self._clock), self._collected_s - collected_s)

    def _begin(self, now_s: float, gap_s: float) -> None:
        """Send a beat. For `gap_s` of CPU this thread could not look: one call into C held the interpreter."""
        self._callback, self._beat_s = 0, None
        self._since_s = self._last_s = now_s - gap_s
        self._longest = Held(0.0, "callback", ())
        self._look(now_s)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_beat)

    def _on_beat(self) -> None:
        self._beat_s = time.thread_time()

    def _look(self, now_s: float) -> None:
        if (frame := sys._current_frames().get(self._thread_id)) is None:
            return
        callback = callback_of(frame)
        if id(callback) != self._callback or callback.f_trace_lines:
            callback.f_trace_lines = False  # a mark: the next frame may be made at the same address
            self._callback, self._since_s = id(callback), self._last_s
        self._last_s = now_s
        if (held_s := now_s - self._since_s) > max(self._longest.cpu_s, BUSY_S):
            self._longest = Held(held_s, "callback", self._stack(frame))

    def _judge(self, beat_s: float, collected_s: float) -> None:
        """Report the callback that was seen running for longest; the last one ended at the latest with the beat."""
        held_s = max(self._longest.cpu_s, beat_s - self._since_s)
        if held_s >= self._limit_s:
            cause: Cause = "garbage_collection" if collected_s > held_s / 2 else "callback"
            self._report(Held(held_s, cause, self._longest.stack))

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != 2 or threading.get_ident() != self._thread_id:
            return
        if phase == "start":
            self._collecting_since_s = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._collecting_since_s


def callback_of(frame: FrameType) -> FrameType:
    """Return the frame of the callback of the loop that this one is in: the same as long as it runs."""
    while (caller := frame.f_back) and caller.f_code not in LOOP_CODE:  # read once: it goes on running meanwhile
        frame = caller
    return frame


def stack_of(frame: FrameType) -> Stack:
    """Return the innermost frames of ours, or of libraries where there are none. No values: only places in code."""
    ours, others = list[str](), list[str]()
    at: FrameType | None = frame
    while at and len(ours) < MOST_FRAMES:
        path = at.f_code.co_filename
        place = path.removeprefix(ROOT)
        found = ours if place != path and place.startswith(FLOORS) else others
        found.append(f"{place}:{at.f_lineno} {at.f_code.co_name}")
        at = at.f_back
    return tuple(ours or others[:MOST_FRAMES])
