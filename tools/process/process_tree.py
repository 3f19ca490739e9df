"""Process trees: find and signal a process together with everything it started.

Children are found in two ways: by descent, and by a mark in their environment, which they inherit even when they
have left their parent, session and process group.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tools.process.orphan_reaper import MARK

if TYPE_CHECKING:
    import psutil

_SWEEPS = 20


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below `pid`, itself excluded; none when it has gone."""
    import psutil  # 20 ms and more that a server's start can do without

    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def marked(mark: str) -> list[psutil.Process]:
    """All live processes that carry `mark`."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


def send_signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each that still lives; a number that was given to another process meanwhile is left alone."""
    import psutil

    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)


def handle_of(process: psutil.Process) -> int | None:
    """A pidfd of a process that still lives; the caller closes it."""
    with suppress(OSError):
        handle = os.pidfd_open(process.pid)
        if process.is_running():
            return handle
        os.close(handle)
    return None


def sweep_now(mark: str) -> None:
    """KILL every process that carries `mark`, until none is left."""
    for _ in range(_SWEEPS):
        found = marked(mark)
        if not found:
            return
        send_signal(found, signal.SIGKILL)


async def sweep(mark: str) -> None:
    """Run `sweep_now` in a thread."""
    await asyncio.to_thread(sweep_now, mark)


async def run_shielded(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` to its end even when cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        raise cancelled
    task.result()
