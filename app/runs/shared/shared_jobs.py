"""Jobs of servers that share their database: each has those of its node, and writes down for the others how they are.

What needs the job itself, such as its whole output or its end, is asked of the server that has it. A job whose server
has gone is `unreachable`: it may still run there. After LOST_S without a server it is `lost`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from app.replicas.nodes import JobRecord
from app.replicas.peers import Body, Refusal, ReplicaGone, Replicas
from app.storage.changes import StoreFailed
from tools.base.tasks import gather_all, wait_at_most
from tools.jobs.manager import KEPT_S, Count, Jobs, OnEnd
from tools.jobs.records import Glance, Job, JobsFailed, JobState, NoSuchJob, OutputPart
from tools.jobs.watch import LATEST_S, TrackedJob

QUESTION, RUNNING = "job", "running_jobs"
LOCK = "jobs"
LOOK_S = 0.5  # between two looks at a job elsewhere that is watched, and at those here for what others should know
LOST_S = 600.0
TIDY_S = 3_600.0
ANSWERED_S = 30.0  # longer than it takes to end a job
SEEN_S = 5.0  # for a look at one
NO_SERVER = "No server runs on node {node}, which has the job {job}. Try again when there is one."
AWAY = "no server runs on its node, {node}"
NO_ANSWER = "The server that has the job {job} did not answer. Try again."

_log = logging.getLogger(__name__)


class KnownJob(Struct, frozen=True):
    """A job as others know it: its state, and when (monotonic) its output was looked at last."""

    job: Job
    record: str
    at: float


class SharedJobs(Jobs):
    """`redact` is for what is stored."""

    def __init__(self, replicas: Replicas, redact: Callable[[Any], Any], *options: Any, **named: Any) -> None:
        super().__init__(*options, **named)
        self._replicas = replicas
        self._redact = redact
        self._written: dict[str, KnownJob] = {}
        self._written_as = ""
        self._news = asyncio.Event()
        self._busy: set[str] = set()  # principals with jobs under way elsewhere, when it was looked last
        self._does: Mapping[str, Callable[[str, str, Body], Awaitable[Any]]] = {
            "glance": self._glance_here,
            "output": self._output_here,
            "cancel": self._cancel_here,
            "forget": self._forget_here,
        }
        replicas.answerers.update({QUESTION: self._answer, RUNNING: self._running_here})

    async def open(
        self, on_end: OnEnd | None = None, count: Count | None = None, report: Callable[[Job], None] | None = None
    ) -> None:
        await super().open(on_end, count, report)
        self._keep(self._write_forever())

    @asynccontextmanager
    async def _running_elsewhere(self, principal: str) -> AsyncGenerator[int, None]:
        """The jobs of a server that has stopped count again once it is back."""
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._replicas.lock(LOCK, principal))
                others = await self._replicas.others()
                counts = await asyncio.gather(*(self._running_at(other, principal) for other in others))
            except StoreFailed as failure:
                raise JobsFailed(str(failure)) from failure
            yield sum(counts)

    async def _running_at(self, replica: str, principal: str) -> int:
        try:
            return int(await self._replicas.ask(replica, RUNNING, {"principal": principal}))
        except (ReplicaGone, Refusal):  # one of an older version does not know the question
            return 0

    async def _running_here(self, body: Body) -> int:
        return len(self.running(body["principal"]))

    async def _conclude(self, known: TrackedJob) -> None:
        await super()._conclude(known)
        self._news.set()

    async def _write_forever(self) -> None:
        tidied = -TIDY_S
        while True:
            try:
                await self._write()
                if time.monotonic() - tidied > TIDY_S:
                    await self._replicas.job_records.forget_old(KEPT_S)
                    tidied = time.monotonic()
            except StoreFailed as failure:
                _log.warning("other servers do not see the jobs of this one, trying again: %s", failure)
            await wait_at_most(LOOK_S, self._news)
            self._news.clear()

    async def _write(self) -> None:
        """Write down what has changed; the output of those that run, from time to time. Raises StoreFailed."""
        me = self._replicas.me
        if me != self._written_as:  # this server was held for dead meanwhile
            self._written, self._written_as = {}, me
        if changed := [one for known in list(self._known.values()) if (one := await self._change_of(known))]:
            await self._replicas.job_records.keep([self._record_of(one) for one in changed])
            self._written |= {one.job.id: one for one in changed}
        if gone := self._written.keys() - self._known.keys():
            await self._replicas.job_records.drop(list(gone))
            for job in gone:
                del self._written[job]

    async def _change_of(self, known: TrackedJob) -> KnownJob | None:
        """Return what others do not know yet of a job."""
        before, now = self._written.get(known.job.id), time.monotonic()
        if before and before.job == known.job and not (known.job.under_way and now - before.at > LATEST_S):
            return None
        try:
            seen = await known.glance()
        except JobsFailed:
            seen = Glance(known.job, known.job.elapsed_s)
        shown = to_builtins(replace(seen, elapsed_s=0.0, job=replace(known.job, pid=None)))
        record = json.dumps(self._redact(shown))
        if before and before.record == record:
            self._written[known.job.id] = KnownJob(known.job, record, now)
            return None
        return KnownJob(known.job, record, now)

    def _record_of(self, written: KnownJob) -> JobRecord:
        job = written.job
        node, replica = self._replicas.nodes.here, self._written_as
        return JobRecord(
            job.id,
            node=node,
            replica=replica,
            principal=job.principal,
            session=job.session,
            under_way=job.under_way,
            record=written.record,
        )

    async def all_of(self, principal: str, session: str | None = None) -> list[Job]:
        elsewhere = [glance_of(one).job for one in await self._records(principal) if session in (None, one.session)]
        (self._busy.add if any(one.under_way for one in elsewhere) else self._busy.discard)(principal)
        return sorted([*self.listed(principal, session), *elsewhere], key=lambda job: job.created)

    def at_work(self) -> set[str]:
        return super().at_work() | self._busy

    async def _records(self, principal: str) -> list[JobRecord]:
        try:
            found = await self._replicas.job_records.elsewhere(principal)
        except StoreFailed as failure:
            raise JobsFailed(str(failure)) from failure
        return [one for one in found if one.id not in self._known]  # a server that has begun again has them still

    async def _elsewhere(self, job: str, principal: str) -> JobRecord | None:
        """The record of a job that another server has; None if it is here. Raises NoSuchJob."""
        known = self._known.get(job)
        if known and known.job.principal == principal:
            return None
        found = next((one for one in await self._records(principal) if one.id == job), None)
        if found is None:
            self.get(job, principal)  # raises
        return found

    async def look_up(self, job: str, principal: str) -> Job:
        record = await self._elsewhere(job, principal)
        return glance_of(record).job if record else self.get(job, principal)

    async def glance(self, job: str, principal: str) -> Glance:
        if (record := await self._elsewhere(job, principal)) is None:
            return await super().glance(job, principal)
        if record.away_s is None:
            try:
                return convert(await self._ask(record, "glance", SEEN_S), Glance)
            except NoSuchJob:
                raise
            except JobsFailed:  # as it was written down last
                record = await self._elsewhere(job, principal) or record
        return glance_of(record)

    async def output(self, job: str, principal: str, *, offset: int, size: int) -> OutputPart:
        if (record := await self._elsewhere(job, principal)) is None:
            return await super().output(job, principal, offset=offset, size=size)
        start, data, *counts = await self._ask(record, "output", offset=offset, size=size)
        return OutputPart(start, b64decode(data), *counts)

    async def cancel(self, job: str, principal: str, *, silent: bool = True) -> Job:
        if (record := await self._elsewhere(job, principal)) is None:
            return await super().cancel(job, principal, silent=silent)
        return convert(await self._ask(record, "cancel", silent=silent), Job)

    async def forget(self, principal: str, session: str) -> None:
        await super().forget(principal, session)
        await gather_all(self._forget_at(one) for one in await self._records(principal) if one.session == session)

    async def _forget_at(self, record: JobRecord) -> None:
        """A server that is gone does not learn of it: it has the job still when it is back."""
        with suppress(NoSuchJob):
            if record.away_s is None:
                await self._ask(record, "forget")
            else:
                await self._replicas.job_records.drop([record.id])

    def watch(self, job: str, principal: str) -> AsyncGenerator[Glance, None]:
        return super().watch(job, principal) if job in self._known else self._watch_elsewhere(job, principal)

    async def _watch_elsewhere(self, job: str, principal: str) -> AsyncGenerator[Glance, None]:
        shown, at = None, 0.0
        while True:
            seen, now = await self.glance(job, principal), time.monotonic()
            if shown != (news := (seen.job, seen.tail, seen.bytes)) or now - at > LATEST_S:
                shown, at = news, now
                yield seen
            if not seen.job.under_way:
                return
            await asyncio.sleep(LOOK_S)

    async def _ask(self, record: JobRecord, what: str, limit_s: float = ANSWERED_S, **more: Any) -> Any:
        """Raises NoSuchJob, JobsFailed."""
        if record.away_s is not None:
            raise JobsFailed(NO_SERVER.format(node=record.node, job=record.id))
        body = {"what": what, "job": record.id, "principal": record.principal, **more}
        try:
            async with asyncio.timeout(limit_s):
                return await self._replicas.ask(record.replica, QUESTION, body)
        except (ReplicaGone, TimeoutError):
            raise JobsFailed(NO_ANSWER.format(job=record.id)) from None
        except Refusal as refusal:
            raise (NoSuchJob if refusal.name == NoSuchJob.__name__ else JobsFailed)(str(refusal)) from refusal
        except StoreFailed as failure:
            raise JobsFailed(str(failure)) from failure

    async def _answer(self, body: Body) -> Any:
        try:
            return await self._does[body["what"]](body["job"], body["principal"], body)
        except JobsFailed as failure:
            raise Refusal(type(failure).__name__, str(failure)) from failure

    async def _glance_here(self, job: str, principal: str, _: Body) -> Any:
        return to_builtins(await self._find(job, principal).glance())

    async def _output_here(self, job: str, principal: str, body: Body) -> Any:
        self.get(job, principal)
        part = await super().output(job, principal, offset=body["offset"], size=body["size"])
        return part.start, b64encode(part.data).decode(), part.bytes, part.lines, part.missing

    async def _cancel_here(self, job: str, principal: str, body: Body) -> Any:
        self.get(job, principal)
        return to_builtins(await super().cancel(job, principal, silent=body["silent"]))

    async def _forget_here(self, job: str, principal: str, _: Body) -> None:
        await super().cancel(job, principal)
        await self._forget(self._find(job, principal))
        self._news.set()


def glance_of(record: JobRecord) -> Glance:
    """A job as its server has written it down, or as it is taken to be while that one is away."""
    seen = convert(json.loads(record.record), Glance)
    job = seen.job
    if job.under_way and record.away_s is not None:
        if record.away_s > LOST_S:
            ended = time.time() - record.away_s
            since = max(0.0, ended - (job.started or job.created))
            job = replace(job, state=JobState.LOST, ended=ended, duration_s=since, reason=AWAY.format(node=record.node))
        else:
            job = replace(job, state=JobState.UNREACHABLE, reason=AWAY.format(node=record.node))
    return replace(seen, job=job, elapsed_s=job.elapsed_s)
