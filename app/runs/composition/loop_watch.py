"""Reports of callbacks that hold the event loop: in the metrics, in the log, and in a file for `dragoman doctor`."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from app.metrics.loop_watchdog import Held, LoopWatchdog
from app.metrics.recorder import Metrics
from app.metrics.table import LOOP_HELD_SECONDS
from app.storage.data_dir import make_private_file

FILE = "held-loop.json"  # in the data directory
MOST_LOGGED, LOGGED_WITHIN_S = 4, 60.0

_log = logging.getLogger(__name__)


class HeldLoop(Struct):
    """The callbacks that have held the loop of a server since its start."""

    process: int
    times: int = 0
    longest_s: float = 0.0
    where: str = ""


def reports(metrics: Metrics, folder: Path) -> Callable[[Held], None]:
    """Return what takes a report in the thread of the watchdog; the metrics are recorded in the loop's."""
    loop = asyncio.get_running_loop()
    so_far = HeldLoop(os.getpid())
    logged = deque[float](maxlen=MOST_LOGGED)  # when

    def report(held: Held) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(metrics.observe, LOOP_HELD_SECONDS, held.cpu_s, held.cause)
        so_far.times += 1
        if held.cpu_s > so_far.longest_s:
            so_far.longest_s, so_far.where = held.cpu_s, described(held)
        with suppress(OSError):  # a full disk is reported elsewhere
            make_private_file(folder / FILE)
            (folder / FILE).write_bytes(msgspec.json.encode(so_far))
        now = time.monotonic()
        if len(logged) < MOST_LOGGED or now - logged[0] > LOGGED_WITHIN_S:
            logged.append(now)
            _log.warning("The event loop was held for %.0f ms of CPU: %s", held.cpu_s * 1000, described(held))

    return report


def described(held: Held) -> str:
    """Return the places in the code; those of a garbage collection do not matter."""
    return "a full garbage collection" if held.cause == "garbage_collection" else " < ".join(held.stack)


@contextmanager
def watched_loop(metrics: Metrics, folder: Path) -> Iterator[None]:
    """Watch the running loop. Nothing is watched where the system has no clock of a thread's CPU."""
    (folder / FILE).unlink(missing_ok=True)
    has_clock = hasattr(time, "pthread_getcpuclockid")
    with LoopWatchdog(reports(metrics, folder)).watching() if has_clock else nullcontext():
        yield


def held_loop(folder: Path, process: int) -> HeldLoop | None:
    """Return what the server of this process has reported; None if nothing has held its loop."""
    try:
        found = msgspec.json.decode((folder / FILE).read_bytes(), type=HeldLoop)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.process == process else None
