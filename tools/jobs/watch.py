"""Watching a job: one reader of its output serves all watchers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from tools.jobs.records import Glance, Job, JobsFailed, glance_at

LOOK_S = 0.2  # a watched job is looked at this often, however many watch it
LATEST_S = 2.0  # and its watchers get an update at least this often

_T = TypeVar("_T")


class TrackedJob(Struct):
    """A job of this server. `handle` is a pidfd of its supervisor while that lives."""

    job: Job
    folder: Path
    handle: int | None = None
    launched: asyncio.Event = field(default_factory=asyncio.Event)  # its start has succeeded or failed
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    released: bool = False  # the server has detached from it
    cancelled: bool = False  # a supervisor that is just starting dies of SIGTERM without a report
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _seen: Glance | None = None
    _watchers: int = 0
    _looking: asyncio.Task[None] | None = None

    def notify(self) -> None:
        """Wake the watchers."""
        self._changed.set()
        self._changed = asyncio.Event()

    def end(self, job: Job) -> None:
        """Record the final state and wake the watchers."""
        self.job = job
        self.ended.set()
        self.notify()

    def release(self) -> None:
        """End all watchers, while the job continues."""
        self.released = True
        self.notify()

    async def glance(self) -> Glance:
        """Return the progress now. Raises JobsFailed."""
        return await off_the_loop(lambda: glance_at(self.folder, self.job))

    async def watch(self) -> AsyncGenerator[Glance, None]:
        """A glance at every change, 5 times a second at most and every 2 s at least; the last one shows the end.

        Ends without it when the server detaches from the job. Raises JobsFailed.
        """
        self._join()
        shown: Glance | None = None
        try:
            while not self.ended.is_set() and not self.released:
                if self._seen is not None and self._seen is not shown:
                    shown = self._seen
                    yield replace(shown, elapsed_s=self.job.elapsed_s)
                    continue
                try:
                    async with asyncio.timeout(LATEST_S):
                        await self._changed.wait()
                except TimeoutError:
                    shown = None  # the clock at least has moved
        finally:
            await self._leave()
        if self.ended.is_set():
            yield await self.glance()

    def _join(self) -> None:
        self._watchers += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name=f"look at {self.job.id}")

    async def _leave(self) -> None:
        self._watchers -= 1
        if self._watchers == 0 and self._looking:
            looking, self._looking, self._seen = self._looking, None, None
            looking.cancel()
            await asyncio.wait([looking])

    async def _look(self) -> None:
        while True:
            seen = await self.glance()
            if self._seen is None or seen.bytes != self._seen.bytes:
                self._seen = seen
                self.notify()
            await asyncio.sleep(LOOK_S)


async def off_the_loop(read: Callable[[], _T]) -> _T:
    """Run `read` in a thread; raise JobsFailed for an OSError."""
    try:
        return await asyncio.to_thread(read)
    except OSError as error:
        raise JobsFailed(f"The job's files cannot be used ({error.strerror}): look at the data directory.") from error
