"""Follow-ups: after a background job has ended, a run of its own reports to its session, once no other run is active.

A run that is begun so may start jobs, whose ends begin runs: since a person last spoke in a session there are at most
`max_follow_ups` of them and so many model requests, counted in the store. After that an end is kept for the session's
next message: as a message for a run that has ended, which the next run finds.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol
from weakref import WeakValueDictionary

from msgspec import Struct

from app.budget.kinds import BudgetSpent
from app.core.data_delimiters import as_data
from app.storage.runs import InboxRow
from app.storage.store import Store
from app.transcript.run_request import UNASKED, NotFound, SessionBusy
from tools.base.pause_check import Paused
from tools.jobs.manager import Jobs
from tools.jobs.records import FollowUp, Job, JobState, OutputPart
from tools.process.process_tree import run_shielded

ROUNDS = 12  # of model and tools that a follow-up may take
HEAD_BYTES, TAIL_BYTES = 1_000, 4_000  # of the output that the model is shown
LAST = (
    "Ends of background jobs have begun as many runs here as may be since you last wrote: further ones are kept for "
    "your next message."
)
REQUESTS_EACH = 5  # model requests that all follow-ups together may make, for each that may begin
BUSY_S = 5.0  # until a follow-up is tried again for which there were too many runs
PAUSE_S = 0.1  # between two looks at a session whose run is only just beginning

_log = logging.getLogger(__name__)


class Turns(Protocol):
    """The part of `RunManager` that follow-ups need."""

    async def under_way(self, session: str) -> str | None: ...

    async def ended(self, run: str) -> None: ...


class Room(Struct, frozen=True):
    """Follow-ups, and model requests in them, that a session has left until its person sends a message."""

    runs: int
    requests: int

    def __bool__(self) -> bool:
        return self.runs > 0 and self.requests > 0

    @property
    def last(self) -> bool:
        """There is no other follow-up behind the next one, or perhaps none."""
        return self.runs == 1 or self.requests <= ROUNDS


Begin = Callable[[Job, str], Awaitable[None]]
"""Starts a run in the job's session with this message, or finds the one that was started for this job already: a
server that was killed before it could keep that the follow-up was given asks again. Raises as `RunManager.start`,
and NoRoom where it would be one too many."""


Keep = Callable[[Job, str], Awaitable[None]]
"""Puts the message by for the next run of the job's session. Raises StoreFailed."""


class NoRoom(Exception):
    """No run begins for this end: it waits for the next message of a person."""


async def room_in(session: str, store: Store, limit: int) -> Room:
    """Counted in the store, so that a restart changes nothing. Raises StoreFailed."""
    runs = await store.runs(session)
    unasked = {run.created: run.id for run in runs if UNASKED in json.loads(run.policy)}
    spoken = max(
        (one.at for one in await store.messages(session) if one.role == "user" and one.at and one.at not in unasked),
        default=0.0,
    )
    since = {run for created, run in unasked.items() if created > spoken}
    used = sum(spent.requests for spent in await store.spent_by_runs(session) if spent.run in since)
    return Room(limit - len(since), limit * REQUESTS_EACH - used)


async def kept_for_next_run(store: Store, job: Job, message: str) -> None:
    """Leave the message behind with the session's last run, where the next one finds it. Raises StoreFailed."""
    runs = await store.runs(job.session)
    if not runs:  # the session has been deleted
        return
    waiting = await store.inbox(runs[-1].id)
    if not any(job.id in row.text for row in waiting):  # else a server was killed before it could note that
        position = max((row.position + 1 for row in waiting), default=0)
        await store.write([InboxRow(runs[-1].id, position, message)])


class FollowUps:
    """Tells each session of the ends of its jobs, one after the other, each at most once."""

    def __init__(
        self,
        jobs: Jobs,
        turns: Turns,
        begin: Begin,
        keep: Keep,
        unpaused: Callable[[], Awaitable[None]],
        *,
        busy_s: float = BUSY_S,
    ) -> None:
        self._busy_s = busy_s
        self._jobs = jobs
        self._unpaused = unpaused
        self._turns = turns
        self._begin = begin
        self._keep = keep
        self._order: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def on_end(self, job: Job) -> None:
        """Follow up on an ended job (for `Jobs.open`).

        Raises JobsFailed, StoreFailed, Stopping; then the next start of the server retries.
        """
        message = await self._message(job)
        turn = self._order.setdefault(job.session, asyncio.Lock())
        async with turn:
            while self._jobs.awaits_follow_up(job.id):
                await self._unpaused()
                await self._quiet(job.session)
                # Surely: what has begun is to be kept as given.
                if await run_shielded(self._start_run(job, message)):
                    await asyncio.sleep(self._busy_s)

    async def _start_run(self, job: Job, message: str) -> bool:
        """Start the run; return True if it is to wait, because there are as many background runs as may be."""
        try:
            # Ended from outside: by the kill switch, or by a signal as when the machine shuts down. No run begins by
            # itself after that. What a person cancelled alone does not come here: it has no follow-up any more.
            if job.state is JobState.CANCELLED:
                raise NoRoom
            await self._begin(job, message)
        except (SessionBusy, Paused):
            return False
        except BudgetSpent:
            return True
        except NoRoom:
            _log.warning("follow-up run for job %s not started: waits for the next message in its session", job.id)
            await self._keep(job, message)
        except NotFound as gone:
            _log.info("follow-up run for job %s not started: %s", job.id, gone)
        await self._jobs.set_follow_up(job.id, FollowUp.GIVEN)
        return False

    async def _quiet(self, session: str) -> None:
        while run := await self._turns.under_way(session):
            await self._turns.ended(run)
            await asyncio.sleep(PAUSE_S)

    async def _message(self, job: Job) -> str:
        head = await self._jobs.output(job.id, job.principal, offset=0, size=HEAD_BYTES + TAIL_BYTES)
        tail = await self._jobs.output(job.id, job.principal, offset=-TAIL_BYTES, size=TAIL_BYTES)
        return follow_up_message(job, head, tail)


def follow_up_message(job: Job, head: OutputPart, tail: OutputPart) -> str:
    """Return the message to the model: state, exit code, and the output's head and tail.

    The output is marked as data in the message itself, which a summary takes over as it takes over what a person said.
    """
    code = "" if job.exit_code is None else f" with exit code {job.exit_code}"
    why = f" ({job.reason})" if job.reason else ""
    ended = f"The background job {job.id} has ended after {job.elapsed_s:.1f} s: {job.state}{code}{why}."
    command = f"Its command was:\n{job.command}"
    return "\n\n".join([ended, command, _output(head, tail), "Go on from here, or say what came of it."])


def _output(head: OutputPart, tail: OutputPart) -> str:
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
