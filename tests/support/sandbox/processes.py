"""What the tests of processes share: finding the ones that a test started, and waiting until they are gone."""

from __future__ import annotations

import asyncio
import os
import select
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

LOOKS = 5
STARTING_S = 5.0  # `execve` has taken the old words away and has not set the new ones


def endless() -> str:
    """A `sleep` that no other process has: its fraction of a second is its name."""
    return f"sleep 1000.{uuid4().int}"


def alive(sleeper: str) -> list[int]:
    """The process ids of a sleeper that really run; a zombie has no command line."""
    words = sleeper.encode().replace(b" ", b"\0") + b"\0"
    return [pid for pid in pids() if command_line(pid) == words]


def pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def command_line(pid: int) -> bytes:
    """The words of a process, of one that is just starting a program as soon as it has some; of a zombie none."""
    process, until = Path(f"/proc/{pid}"), time.monotonic() + STARTING_S
    with suppress(OSError):
        while not (words := (process / "cmdline").read_bytes()) and time.monotonic() < until:
            (process / "exe").readlink()  # which threads of the kernel and zombies do not have
        return words
    return b""


async def until_alive(sleeper: str) -> None:
    """For tests that are bounded: what starts it may be a step ahead of it."""
    while not await asyncio.to_thread(partial(alive, sleeper)):
        pass


def all_gone(sleeper: str) -> bool:
    """True when all have ended, or do so in a bounded wait on each; one may be starting while another ends."""
    for _ in range(LOOKS):
        found = alive(sleeper)
        if not found:
            return True
        if not all(map(ended, found)):
            return False
    return False


def ended(pid: int, limit_s: float = 60) -> bool:
    """Whether the process is gone, or goes within the limit."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            return bool(select.select([handle], [], [], limit_s)[0])
        finally:
            os.close(handle)
    return True
