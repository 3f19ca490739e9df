"""When a background job has ended, its session is told by a run of its own, once no other run is under way there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol
from weakref import WeakValueDictionary

from app.framing import as_data
from app.turns import NotFound, SessionBusy
from tools.family import surely
from tools.job_records import FollowUp, Job, Part
from tools.jobs import Jobs
from tools.paused import Paused

ROUNDS = 12  # of model and tools that a follow-up may take
HEAD_BYTES, TAIL_BYTES = 1_000, 4_000  # of the output that the model is shown
PAUSE_S = 0.1  # between two looks at a session whose run is only just beginning

_log = logging.getLogger(__name__)


class Turns(Protocol):
    """What is asked of `Runs`."""

    def under_way(self, session: str) -> str | None: ...

    async def ended(self, run: str) -> None: ...


Begin = Callable[[Job, str], Awaitable[None]]
"""Starts a run in the job's session with this message, or finds the one that was started for this job already: a
server that was killed before it could keep that the follow-up was given asks again. Raises what `Runs.start` raises."""


class FollowUps:
    """Tells each session of the ends of its jobs, one after the other, each at most once."""

    def __init__(self, jobs: Jobs, turns: Turns, begin: Begin, unpaused: Callable[[], Awaitable[None]]) -> None:
        self._jobs = jobs
        self._unpaused = unpaused
        self._turns = turns
        self._begin = begin
        self._order: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def on_end(self, job: Job) -> None:
        """For `Jobs.open`. Raises JobsFailed, StoreFailed, Stopping; then it is tried again at the next start."""
        message = await self._message(job)
        turn = self._order.setdefault(job.session, asyncio.Lock())
        async with turn:
            while self._jobs.untold(job.id):
                await self._unpaused()
                await self._quiet(job.session)
                # Surely: what has begun is to be kept as given.
                await surely(self._tell(job, message))

    async def _tell(self, job: Job, message: str) -> None:
        try:
            await self._begin(job, message)
        except (SessionBusy, Paused):
            return
        except NotFound as gone:
            _log.info("nobody is told that %s has ended: %s", job.id, gone)
        await self._jobs.set_follow_up(job.id, FollowUp.GIVEN)

    async def _quiet(self, session: str) -> None:
        while run := self._turns.under_way(session):
            await self._turns.ended(run)
            await asyncio.sleep(PAUSE_S)

    async def _message(self, job: Job) -> str:
        head = await self._jobs.output(job.id, job.principal, offset=0, size=HEAD_BYTES + TAIL_BYTES)
        tail = await self._jobs.output(job.id, job.principal, offset=-TAIL_BYTES, size=TAIL_BYTES)
        return follow_up_message(job, head, tail)


def follow_up_message(job: Job, head: Part, tail: Part) -> str:
    """What the model is told of the end: state, exit code, and the output's head and tail.

    The output is marked as data in the message itself, which a summary takes over as it takes over what a person said.
    """
    code = "" if job.exit_code is None else f" with exit code {job.exit_code}"
    why = f" ({job.reason})" if job.reason else ""
    told = f"The background job {job.id} has ended after {job.elapsed_s:.1f} s: {job.state}{code}{why}."
    command = f"Its command was:\n{job.command}"
    return "\n\n".join([told, command, _output(head, tail), "Go on from here, or say what came of it."])


def _output(head: Part, tail: Part) -> str:
    if not head.bytes:
        return "It wrote nothing."
    if len(head.data) == head.bytes:
        return as_data("Its output", _text(head.data))
    first = head.data[:HEAD_BYTES]
    left_out = tail.start - len(first)
    note = f"[... {left_out:,} bytes left out; job_output shows them ...]"
    return as_data("Its output", f"{_text(first)}\n{note}\n{_text(tail.data)}")


def _text(data: bytes) -> str:
    return data.decode(errors="replace").replace("\0", "\ufffd").rstrip("\n")
