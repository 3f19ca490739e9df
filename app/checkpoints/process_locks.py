"""Locks of workspaces among the workers of one machine, which share the checkpoints: files that are locked (flock)."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from zlib import crc32

from tools.base.file_lock import try_lock

PLACES = 256  # files for the locks of all workspaces: two that have the same one wait for each other
PAUSES_S = (0.002, 0.1)  # between two tries, at first and at most: a thread that waits could be the one needed
ALONE_S = 5.0


class ProcessLocks:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(0o700, exist_ok=True)
        self._folder = folder

    @asynccontextmanager
    async def looking(self, workspace: str) -> AsyncIterator[None]:
        """Hold a workspace."""
        place = str(crc32(workspace.encode()) % PLACES)
        async with _held(self._folder / "all", fcntl.LOCK_SH), _held(self._folder / place, fcntl.LOCK_EX):
            yield

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold all of them. Raises TimeoutError while others look all the time."""
        async with asyncio.timeout(ALONE_S) as limit, _held(self._folder / "all", fcntl.LOCK_EX):
            limit.reschedule(None)
            yield


@asynccontextmanager
async def _held(path: Path, how: int) -> AsyncIterator[None]:
    pause_s, most_s = PAUSES_S
    with path.open("ab") as file:
        while not try_lock(file, how):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, most_s)
        yield
