"""What the tests of background jobs share: jobs of one user in a folder, and waiting for what must happen."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from tools.jobs.manager import CANCEL_S, KEPT, Jobs
from tools.jobs.records import FollowUp, Glance, Job
from tools.sandbox.sandbox import NoSandbox, Sandbox, find_sandbox

ANN = "ann"
SESSION = "ses_1"
LIMIT_S = 60
FOUND = find_sandbox()
UNBOXED = find_sandbox(unsafe=True)
LANDLOCK = find_sandbox(levels=["landlock"])
LEVELS = [UNBOXED, *(found for found in (FOUND, LANDLOCK) if not isinstance(found, NoSandbox))]


@asynccontextmanager
async def opened(
    folder: Path,
    ended: asyncio.Queue[Job] | None = None,
    *,
    limit: int = 8,
    time_limit_s: float = LIMIT_S,
    cancel_s: float = CANCEL_S,
    kept: int = KEPT,
) -> AsyncGenerator[Jobs, None]:
    """The jobs of a server that lives as long as this block; `ended` gets what it tells of."""
    jobs = Jobs(folder / "data" / "jobs", limit=limit, time_limit_s=time_limit_s, cancel_s=cancel_s, kept=kept)

    async def on_end(job: Job) -> None:
        if ended is not None:
            await jobs.set_follow_up(job.id, FollowUp.GIVEN)
            ended.put_nowait(job)

    async with asyncio.timeout(LIMIT_S):
        try:
            await jobs.open(on_end)
            yield jobs
        finally:
            await jobs.close()


async def started(jobs: Jobs, folder: Path, command: str, sandbox: Sandbox | NoSandbox = UNBOXED) -> Job:
    (folder / "work").mkdir(exist_ok=True)
    return await jobs.start(command, session=SESSION, principal=ANN, sandbox=sandbox, workspace=folder / "work")


async def until(jobs: Jobs, job: str, met: Callable[[Glance], bool]) -> Glance:
    """The first glance that meets the condition."""
    async with aclosing(jobs.watch(job, ANN)) as glances:
        async for glance in glances:
            if met(glance):
                return glance
    raise AssertionError("the job ended without that")


async def end_of(jobs: Jobs, job: str) -> Glance:
    return await until(jobs, job, lambda glance: not glance.job.under_way)


def wait_for_exit(pid: int) -> None:
    """Until a process has ended, which must happen soon."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], 30)[0]
    finally:
        os.close(handle)
