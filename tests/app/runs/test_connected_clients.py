"""Who may still be here: streams that end by themselves, streams that are cut, and what goes wrong meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.runs.connections import NotAllowedAnyMore, OpenStream, Presence, TooManyStreams
from app.storage.changes import StoreFailed
from app.storage.principals import Principal, principal_of
from app.storage.sqlite.store import SQLiteStore
from app.storage.tokens import TokenCounts, TokenRevoked, TokenRow
from tools.jobs.records import FollowUp, Job, JobsFailed, JobState, NoSuchJob

pytestmark = pytest.mark.anyio

LIMIT_S = 30
ANN = TokenRow("hash", "ann", "user", 1.0)


@dataclass(slots=True)
class Work:
    """Runs of some people, and the jobs of ann; what is cancelled is noted."""

    busy: set[str] = field(default_factory=set)
    jobs: list[Job] = field(default_factory=list)
    failure: Exception | None = None
    cancelled: list[tuple[str, str]] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    def at_work(self) -> set[str]:
        return self.busy | {job.principal for job in self.jobs if job.under_way}

    async def cancel_of(self, principal: str, why: str) -> None:
        self.began.set()
        await self.may_end.wait()
        self.cancelled.append((principal, why))
        self.busy.discard(principal)

    def listed(self, principal: str) -> list[Job]:
        return [job for job in self.jobs if job.principal == principal]

    async def cancel(self, job: str, principal: str) -> Job:
        self.cancelled.append((principal, job))
        if self.failure:
            raise self.failure
        [found] = [one for one in self.jobs if one.id == job]
        self.jobs.remove(found)
        return found


@asynccontextmanager
async def present(folder: Path, work: Work, max_streams: int = 3) -> AsyncGenerator[tuple[Presence, SQLiteStore]]:
    async with asyncio.timeout(LIMIT_S):
        store = await SQLiteStore.open(folder / "db")
        await store.write([ANN])
        presence = Presence(store, work, work, max_streams)
        await presence.look()
        try:
            yield presence, store
        finally:
            await presence.close()
            await store.close()


async def revoked(store: SQLiteStore) -> None:
    await store.write([TokenRevoked(ANN.sha256, time.time())])


async def test_a_stream_that_ends_by_itself_is_not_cut(tmp_path: Path) -> None:
    work = Work({"ann", "bob"})
    async with present(tmp_path, work) as (presence, store):
        place, cut = presence.place(principal_of(ANN)), list[str]()
        place.cut = lambda: cut.append("cut")
        await revoked(store)
        ending = asyncio.create_task(presence.revoked("ann"))
        await work.began.wait()
        work.may_end.set()
        place.leave()
        await ending
        assert (cut, work.cancelled, work.busy) == ([], [("ann", "revoked")], {"bob"})
        assert presence.streams("ann") == 0


async def test_a_stream_that_stays_is_cut_though_a_run_does_not_end(tmp_path: Path) -> None:
    work = Work({"ann"})
    async with present(tmp_path, work) as (presence, store):
        place, cut = presence.place(principal_of(ANN)), asyncio.Event()
        place.cut = cut.set
        await revoked(store)
        ending = asyncio.create_task(presence.revoked("ann"))
        await cut.wait()
        assert not ending.done() and work.busy
        work.may_end.set()
        await ending
        place.leave()


async def test_a_stream_that_has_not_begun_is_told(tmp_path: Path) -> None:
    work = Work()
    async with present(tmp_path, work) as (presence, store):
        place = presence.place(principal_of(ANN))
        place.check()
        await revoked(store)
        work.may_end.set()
        await presence.revoked("ann")
        with pytest.raises(NotAllowedAnyMore):
            place.check()
        with pytest.raises(NotAllowedAnyMore):
            presence.place(principal_of(ANN))


async def test_a_place_is_given_back_once(tmp_path: Path) -> None:
    async with present(tmp_path, Work(), max_streams=2) as (presence, _):
        ann = principal_of(ANN)
        first, second = presence.place(ann), presence.place(ann)
        for _ in range(3):
            with pytest.raises(TooManyStreams, match="2 streams are open"):
                presence.place(ann)
        first.leave()
        first.leave()
        assert presence.streams("ann") == 1
        with pytest.raises(RuntimeError), presence.place(ann):
            raise RuntimeError  # what was to be streamed cannot be had
        with presence.place(ann) as kept:
            assert isinstance(kept, OpenStream)
        assert presence.streams("ann") == 2, "its stream gives it back"
        assert presence.place(Principal("bob", ann.role)) is not None
        second.leave()


def job_of_ann(number: int, state: JobState) -> Job:
    return Job(f"job_{number}", "ses_1", "ann", "sleep 600", 1.0, 60, FollowUp.OFF, state)


@pytest.mark.parametrize("failure", [None, NoSuchJob("forgotten"), JobsFailed("the disk is full")])
async def test_jobs_that_run_end_whatever_becomes_of_one(tmp_path: Path, failure: Exception | None) -> None:
    jobs = [job_of_ann(1, JobState.RUNNING), job_of_ann(2, JobState.EXITED), job_of_ann(3, JobState.RUNNING)]
    work = Work({"ann"}, jobs, failure)
    work.may_end.set()
    async with present(tmp_path, work) as (presence, store):
        await revoked(store)
        await presence.revoked("ann")
        assert work.cancelled == [("ann", "revoked"), ("ann", "job_1"), ("ann", "job_3")]


async def test_what_begins_later_ends_too(tmp_path: Path) -> None:
    work = Work()
    work.may_end.set()
    async with present(tmp_path, work) as (presence, store):
        await revoked(store)
        await presence.revoked("ann")
        assert work.cancelled == []
        work.busy.add("ann")  # a request that was on its way
        await presence.revoked("ann")
        assert work.cancelled == [("ann", "revoked")]


class Failing(SQLiteStore):
    """A store that cannot be read at first."""

    failures = 2
    asked: asyncio.Event

    async def token_counts(self, now: float) -> TokenCounts:
        if self.failures:
            self.failures -= 1
            raise StoreFailed("The disk is gone.")
        self.asked.set()
        return await super().token_counts(now)


async def test_a_store_that_fails_is_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(LIMIT_S):
        store = await Failing.open(tmp_path / "db")
        store.asked = asyncio.Event()
        watching = asyncio.create_task(Presence(store, Work(), Work(), 1).watch_forever())
        await store.asked.wait()
        watching.cancel()
        await asyncio.wait([watching])
        await store.close()
    assert caplog.text.count("The disk is gone.") == 2
