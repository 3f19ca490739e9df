"""Process trees: find and signal a process together with everything it started.

Children are found in two ways: by descent, and by a mark in their environment, which they inherit even when they
have left their parent, session and process group.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tools.process.orphan_reaper import MARK

if TYPE_CHECKING:
    import psutil

_PROCESSES = Path("/proc")
_SWEEPS = 20
_ENVIRONMENT = slice(47, 49)  # where it begins and ends, in /proc/PID/stat behind the name
# In the middle of `execve` a process has no environment: that takes a moment, unless the machine is busy.
_STARTING_S = 0.5
_LOOK_S = 0.001

Result = TypeVar("Result")


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below `pid`, itself excluded; none when it has gone."""
    import psutil  # 20 ms and more that a server's start can do without

    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


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
    word = f"{MARK}={mark}".encode()
    for _ in range(_SWEEPS):
        if not _kill_marked(word):
            return


def _kill_marked(word: bytes) -> bool:
    """Kill those that can be seen; return False if there are none, nor were.

    A process that ends before it is looked at may have forked another, which the list does not have: so those that
    have come since are looked at, too.
    """
    seen = set[str]()
    killed = False
    for _ in range(_SWEEPS):
        new = {name for name in os.listdir(_PROCESSES) if name.isdigit()} - seen  # noqa: PTH208
        if not new:
            break
        for pid in map(int, new):
            killed |= _kill_if_marked(pid, word)
        seen |= new
    return killed


def _kill_if_marked(pid: int, word: bytes) -> bool:
    if word not in _environment(pid):
        return False
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if word in _environment(pid):  # else its number was given to another process meanwhile
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
    return True


def _environment(pid: int) -> list[bytes]:
    """Return the environment of a process, of one that is starting a program once it is there; of others' none."""
    process = _PROCESSES / str(pid)
    until = time.monotonic() + _STARTING_S
    with suppress(OSError):
        while not (environment := (process / "environ").read_bytes()) and time.monotonic() < until:
            begin, end = (process / "stat").read_bytes().rpartition(b")")[2].split()[_ENVIRONMENT]
            if begin == end != b"0":
                break  # it really has none
            (process / "exe").readlink()  # which threads of the kernel and zombies do not have
            time.sleep(_LOOK_S)
        return environment.split(b"\0")
    return []


async def run_shielded(work: Coroutine[Any, Any, Result]) -> Result:
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
    return task.result()
