"""Background jobs: commands that outlive the call, the run and the server that started them.

Each has a folder and a supervisor process of its own (`tools/jobs/supervisor.py`); this is the server's side of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

from msgspec.structs import replace

from tools.base.pause_check import CheckPaused, Paused, never_paused
from tools.base.tasks import gather_all, wait_at_most
from tools.jobs.launch import clean_up_job, find, find_all, launch, reap, wait_for
from tools.jobs.records import (
    SHOWN_COMMAND,
    UNREADABLE,
    FollowUp,
    Glance,
    Job,
    JobsFailed,
    JobState,
    NoSuchJob,
    OutputPart,
    failed,
    lost,
    read_part,
    with_state,
    write_job,
    write_state,
)
from tools.jobs.watch import TrackedJob, off_the_loop
from tools.sandbox.network.secrets import BoxSecret
from tools.sandbox.sandbox import NoSandbox, Sandbox

TIME_LIMIT_S = 3600.0
LIMIT = 8  # jobs of one principal that run at a time
KEPT = 50  # ended jobs of one principal
KEPT_S = 7 * 86_400.0
CANCEL_S = 8.0  # a supervisor that has not ended its job by then is killed, and its job with it
KILL_S = 10.0  # until what was killed has gone

_log = logging.getLogger(__name__)

OnEnd = Callable[[Job], Coroutine[Any, Any, None]]
Count = Callable[[Job, asyncio.Event], Coroutine[Any, Any, None]]  # the event is set when the job has ended


class Jobs:
    """All jobs of this server, in `folder`. Use `open()` before anything else and `close()` at the end.

    Jobs are visible only to their principal; others get NoSuchJob. `on_end` is awaited once for each job whose
    follow-up is pending, also for those that ended while no server ran; the callback then calls `set_follow_up` with
    `given`. `follow_up`: new jobs get a follow-up. `count` runs beside each job.
    """

    def __init__(
        self,
        folder: Path,
        *,
        limit: int = LIMIT,
        time_limit_s: float = TIME_LIMIT_S,
        cancel_s: float = CANCEL_S,
        kept: int = KEPT,
        follow_up: bool = True,
        check_paused: CheckPaused = never_paused,
    ) -> None:
        self._folder = folder
        self._limit = limit
        self._time_limit_s = time_limit_s
        self._cancel_s = cancel_s
        self._kept = kept
        self._follow_up = FollowUp.PENDING if follow_up else FollowUp.OFF
        self._check_paused = check_paused
        self._known: dict[str, TrackedJob] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_end: OnEnd | None = None
        self._count: Count | None = None
        self._report: Callable[[Job], None] | None = None

    async def open(
        self, on_end: OnEnd | None = None, count: Count | None = None, report: Callable[[Job], None] | None = None
    ) -> None:
        """Adopt running jobs, and conclude those whose supervisor has ended: nothing of them runs afterwards.

        `report` is called with each job that has ended, after a restart once more.
        """
        self._on_end = on_end
        self._count = count
        self._report = report
        for folder, job, handle in await asyncio.to_thread(find_all, self._folder):
            known = self._known[job.id] = TrackedJob(job, folder)
            known.launched.set()
            if handle is not None:
                self._watch_over(known, handle)
            else:
                await self._conclude(known)

    @asynccontextmanager
    async def _running_elsewhere(self, _principal: str) -> AsyncGenerator[int, None]:
        """The number of a principal's jobs that run at other servers, none of which starts another one meanwhile."""
        yield 0

    async def close(self) -> None:
        """Detach from the jobs; they continue."""
        for known in self._known.values():
            self._release_handle(known)
            known.release()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def start(
        self,
        command: str,
        *,
        session: str,
        principal: str,
        sandbox: Sandbox | NoSandbox,
        workspace: Path,
        network: Sequence[str] = (),
        secrets: Sequence[BoxSecret] = (),
    ) -> Job:
        """Start a shell command and return at once; `network` has the hosts that it may reach. Raises JobsFailed."""
        try:
            self._check_paused()
        except Paused as paused:
            raise JobsFailed(str(paused)) from paused
        if isinstance(sandbox, NoSandbox):
            raise JobsFailed(sandbox.reason)
        try:
            script = command.encode()
        except UnicodeEncodeError as error:
            raise JobsFailed(f"The character at {error.start} is a lone surrogate: write it as valid text.") from error
        async with self._running_elsewhere(principal) as others:
            self._check_room(principal, others)
            job = Job(
                id=f"job_{token_hex(10)}",
                session=session,
                principal=principal,
                command=command[:SHOWN_COMMAND],
                created=time.time(),
                time_limit_s=self._time_limit_s,
                follow_up=self._follow_up,
            )
            known = self._known[job.id] = TrackedJob(job, self._folder / job.id)
            # Shielded: a job that has been started must be recorded, even when the caller was cancelled.
            begin = partial(launch, known.folder, job, script, sandbox, workspace, network=network, secrets=secrets)
            starting = self._keep(self._start(known, begin))
            await asyncio.shield(starting)
        return known.job

    async def _start(self, known: TrackedJob, begin: Callable[[], int]) -> None:
        try:
            pid = await asyncio.to_thread(begin)
            known.job, handle = await asyncio.to_thread(find, known.folder, known.job)
            if handle is None:
                await asyncio.to_thread(wait_for, pid)
            if known.job.state is JobState.FAILED:
                raise JobsFailed(known.job.reason or "The job could not be started.")
        except JobsFailed as failure:
            known.end(failed(known.job, str(failure)))  # it was listed already, so it may have watchers
            await self._forget(known)
            raise
        finally:
            known.launched.set()
        if handle is not None:
            self._watch_over(known, handle)
        else:
            await self._conclude(known)

    def _check_room(self, principal: str, others: int) -> None:
        if not self._limit:
            raise JobsFailed("Background jobs are off here (DRAGOMAN_JOB_LIMIT is 0): run it in the foreground.")
        running = self.running(principal)
        count = len(running) + others
        if count >= self._limit:
            message = f"{count} jobs are running, which is the limit: wait for one to end, or cancel one"
            listed = [*running[:LIMIT], *([f"{others} at other servers"] if others else [])]
            raise JobsFailed(f"{message} ({', '.join(listed)}).")

    def running(self, principal: str) -> list[str]:
        """Return the ids of the principal's jobs that have not ended."""
        return [known.job.id for known in self._of(principal) if not known.ended.is_set()]

    def _of(self, principal: str) -> list[TrackedJob]:
        return [known for known in self._known.values() if known.job.principal == principal]

    def listed(self, principal: str, session: str | None = None) -> list[Job]:
        """The jobs of a principal, or of one of its sessions: oldest first."""
        jobs = [known.job for known in self._of(principal) if session in (None, known.job.session)]
        return sorted(jobs, key=lambda job: job.created)

    async def all_of(self, principal: str, session: str | None = None) -> list[Job]:
        """The same, with those that other servers have. Raises JobsFailed."""
        return self.listed(principal, session)

    def under_way(self) -> int:
        """Return the number of jobs that have not ended."""
        return sum(not known.ended.is_set() for known in self._known.values())

    def at_work(self) -> set[str]:
        """The principals that have a job under way."""
        return {known.job.principal for known in self._known.values() if not known.ended.is_set()}

    def get(self, job: str, principal: str) -> Job:
        """Raises NoSuchJob."""
        return self._find(job, principal).job

    async def look_up(self, job: str, principal: str) -> Job:
        """The same, also of a job that another server has. Raises NoSuchJob, JobsFailed."""
        return self.get(job, principal)

    async def glance(self, job: str, principal: str) -> Glance:
        """The job, its last lines and counts of its output. Raises NoSuchJob, JobsFailed."""
        return await self._find(job, principal).glance()

    async def output(self, job: str, principal: str, *, offset: int, size: int) -> OutputPart:
        """At most `size` bytes of output from byte `offset` on, or before the end if negative. Raises as `glance`."""
        known = self._find(job, principal)
        return await off_the_loop(lambda: read_part(known.folder, offset, size))

    async def cancel_all(self) -> None:
        """Cancel all jobs; each session reports it with the next message of the user."""
        running = [known.job for known in self._known.values() if not known.ended.is_set()]
        await gather_all(self.cancel(job.id, job.principal, silent=False) for job in running)

    async def cancel(self, job: str, principal: str, *, silent: bool = True) -> Job:
        """End a job with everything it started, and return when it is gone.

        `silent`: no follow-up in its session, because the one who cancelled it sees the result.
        """
        known = self._find(job, principal)
        await known.launched.wait()
        if not known.ended.is_set():
            known.cancelled = True
            if silent:
                with suppress(JobsFailed):  # a disk that is full must not keep the job running
                    await self.set_follow_up(job, FollowUp.OFF)
            for what, wait_s in ((signal.SIGTERM, self._cancel_s), (signal.SIGKILL, KILL_S)):
                if known.handle is not None:
                    with suppress(ProcessLookupError):
                        signal.pidfd_send_signal(known.handle, what)
                await wait_at_most(wait_s, known.ended)
                if known.ended.is_set():
                    break
        return known.job

    async def forget(self, principal: str, session: str) -> None:
        """End the jobs of a session, and keep nothing of them."""
        for known in [one for one in self._of(principal) if one.job.session == session]:
            with suppress(NoSuchJob):  # the end of one may push another out
                await self.cancel(known.job.id, principal)
            await self._forget(known)

    def watch(self, job: str, principal: str) -> AsyncGenerator[Glance, None]:
        """Yield the progress of a job: at most 5 times a second on change, at least every 2 s, and last its end.

        Ends without that when this server closes. Raises NoSuchJob, JobsFailed.
        """
        return self._find(job, principal).watch()

    def awaits_follow_up(self, job: str) -> bool:
        """Return whether the follow-up of this job is pending."""
        known = self._known.get(job)
        return known is not None and known.job.follow_up is FollowUp.PENDING

    async def set_follow_up(self, job: str, follow_up: FollowUp) -> None:
        """Raises JobsFailed when it cannot be kept."""
        known = self._known.get(job)
        if known is None:
            return
        known.job = replace(known.job, follow_up=follow_up)
        async with known.writing:
            await off_the_loop(lambda: write_job(known.folder, known.job))

    def _find(self, job: str, principal: str) -> TrackedJob:
        known = self._known.get(job)
        if known is None or known.job.principal != principal:
            raise NoSuchJob(f"There is no job {job[:40]!a}.")
        return known

    def _watch_over(self, known: TrackedJob, handle: int) -> None:
        known.handle = handle
        asyncio.get_running_loop().add_reader(handle, self._on_exit, known)
        if self._count:
            self._keep(self._count(known.job, known.ended)).add_done_callback(_report)

    def _on_exit(self, known: TrackedJob) -> None:
        self._release_handle(known)
        self._keep(self._conclude(known)).add_done_callback(_report)

    def _release_handle(self, known: TrackedJob) -> None:
        if known.handle is not None:
            asyncio.get_running_loop().remove_reader(known.handle)
            reap(known.handle)
            os.close(known.handle)
            known.handle = None

    async def _conclude(self, known: TrackedJob) -> None:
        """The supervisor has ended: record how its job ended, and clean up."""
        if known.job.under_way:
            known.job = replace(await self._last_state(known), follow_up=known.job.follow_up)
        await self._prune()
        known.end(known.job)
        if self._report:
            self._report(known.job)
        if self._on_end and self.awaits_follow_up(known.job.id):
            self._keep(self._on_end(known.job)).add_done_callback(_report)

    async def _last_state(self, known: TrackedJob) -> Job:
        try:
            job = await asyncio.to_thread(with_state, known.folder, known.job)
        except UNREADABLE as error:
            _log.error("job %s: its final state cannot be read: %r", known.job.id, error)
            job = known.job
        if not job.under_way:
            return job
        await asyncio.to_thread(clean_up_job, known.folder)
        job = lost(job, cancelled=known.cancelled)
        try:
            await asyncio.to_thread(write_state, known.folder, job)
        except OSError as error:
            _log.error("job %s: its final state cannot be stored: %s", job.id, error)
        return job

    async def _prune(self) -> None:
        """Remove the oldest and the expired of the ended jobs, but none whose follow-up is pending."""
        ended = [known for known in self._known.values() if not known.job.under_way]
        if self._on_end:
            ended = [known for known in ended if not self.awaits_follow_up(known.job.id)]
        ended.sort(key=lambda known: known.job.ended or 0, reverse=True)
        kept: Counter[str] = Counter()
        for known in ended:
            kept[known.job.principal] += 1
            if kept[known.job.principal] > self._kept or (known.job.ended or 0) < time.time() - KEPT_S:
                await self._forget(known)

    async def _forget(self, known: TrackedJob) -> None:
        self._known.pop(known.job.id, None)
        self._release_handle(known)
        await asyncio.to_thread(shutil.rmtree, known.folder, ignore_errors=True)

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.error("a task of the job manager failed", exc_info=error)
