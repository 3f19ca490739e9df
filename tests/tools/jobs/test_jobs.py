"""Background jobs with real processes: started at once, watched live, bounded, cancelled with all they started."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from pathlib import Path

import pytest
import uvloop

from tests.support.nightly import at_night
from tests.support.sandbox.jobs import ANN, LEVELS, SESSION, end_of, opened, started, until
from tests.support.sandbox.processes import alive, all_gone, endless
from tools.jobs.manager import Jobs
from tools.jobs.records import FollowUp, Job, JobsFailed, JobState, NoSuchJob
from tools.sandbox.sandbox import NO_SANDBOX, NoSandbox, Sandbox

pytestmark = pytest.mark.anyio
KEPT = at_night(50, 5)


@pytest.fixture(params=LEVELS, ids=lambda found: found.level)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    found: Sandbox = request.param
    return found


@pytest.mark.parametrize(
    ("command", "exit_code", "tail"),
    [
        ("echo hello", 0, ("hello",)),
        ("true", 0, ()),
        ("echo so far; exit 3", 3, ("so far",)),
        ("kill -KILL $$", 137, ()),
        ("echo out; echo err >&2; echo out", 0, ("out", "err", "out")),
        ("read line; echo got $?", 0, ("got 1",)),
        ("pwd > place; cat place", 0, None),
        ("exec >&- 2>&-; exit 4", 4, ()),
        ("printenv SECRET_OF_THE_SERVER || echo none", 0, ("none",)),
    ],
)
async def test_how_a_job_ends(
    tmp_path: Path,
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    exit_code: int,
    tail: tuple[str, ...] | None,
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")
    async with opened(tmp_path) as jobs:
        job = await started(jobs, tmp_path, command, sandbox)
        end = await end_of(jobs, job.id)
    assert (end.job.state, end.job.exit_code) == (JobState.EXITED, exit_code)
    assert end.tail == ((str(tmp_path / "work"),) if tail is None else tail)
    assert end.job.duration_s is not None and end.job.started is not None and end.job.ended is not None


async def test_the_answer_comes_while_the_command_runs_and_its_tail_is_live(tmp_path: Path, sandbox: Sandbox) -> None:
    sleeper, seen = endless(), []
    async with opened(tmp_path) as jobs:
        job = await started(
            jobs, tmp_path, f"echo one; until [ -e go ]; do read -t 0.05 <> <(:); done; echo two; {sleeper}", sandbox
        )
        assert job.state is JobState.RUNNING and job.pid and job.session == SESSION
        async with aclosing(jobs.watch(job.id, ANN)) as glances:
            async for glance in glances:
                seen.append(glance)
                if glance.tail == ("one",):
                    (tmp_path / "work" / "go").touch()
                if glance.lines == 2:
                    break
        assert (seen[-1].lines, seen[-1].bytes) == (2, 8)
        assert (await jobs.cancel(job.id, ANN)).state is JobState.CANCELLED
    assert all_gone(sleeper)


async def test_cancel_takes_the_whole_tree_also_when_it_ignores_term(tmp_path: Path, sandbox: Sandbox) -> None:
    deaf, child, escaped = endless(), endless(), endless()
    command = f"trap '' TERM; {child} & (setsid {escaped} &) ; echo ready; {deaf}"
    async with opened(tmp_path) as jobs:
        job = await started(jobs, tmp_path, command, sandbox)
        await until(jobs, job.id, lambda glance: bool(glance.lines and alive(deaf) and alive(child) and alive(escaped)))
        ended = await jobs.cancel(job.id, ANN)
        assert (ended.state, ended.follow_up) == (JobState.CANCELLED, FollowUp.OFF)
        assert (await jobs.cancel(job.id, ANN)).state is JobState.CANCELLED, "a second time does no harm"
    assert all_gone(deaf) and all_gone(child) and all_gone(escaped)


async def test_a_job_that_obeys_ends_by_term_and_may_say_so(tmp_path: Path, sandbox: Sandbox) -> None:
    async with opened(tmp_path) as jobs:
        job = await started(
            jobs, tmp_path, "trap 'echo bye; exit 5' TERM; echo up; while :; do read -t 0.05 <> <(:); done", sandbox
        )
        await until(jobs, job.id, lambda glance: glance.tail == ("up",))
        await jobs.cancel(job.id, ANN)
        glance = await jobs.glance(job.id, ANN)
    assert glance.tail == ("up", "bye") and glance.job.state is JobState.CANCELLED


async def test_the_time_limit(tmp_path: Path, sandbox: Sandbox) -> None:
    """Also of what has lost its mark."""
    sleepers = [endless(), endless()]
    async with opened(tmp_path, time_limit_s=0.3) as jobs:
        begun = [
            await started(jobs, tmp_path, f"trap '' TERM; {unmarked}{sleeper}", sandbox)
            for unmarked, sleeper in zip(("", "exec env -i "), sleepers, strict=True)
        ]
        ends = await asyncio.gather(*(end_of(jobs, job.id) for job in begun))
        assert {end.job.state for end in ends} == {JobState.TIMED_OUT}
    assert all(map(all_gone, sleepers))


async def test_what_outlives_its_command_is_taken_down(tmp_path: Path, sandbox: Sandbox) -> None:
    sleeper = endless()
    async with opened(tmp_path) as jobs:
        job = await started(jobs, tmp_path, f"setsid {sleeper} & echo over", sandbox)
        end = await end_of(jobs, job.id)
    assert (end.job.state, end.tail) == (JobState.EXITED, ("over",)) and all_gone(sleeper)


async def test_each_has_its_own_jobs(tmp_path: Path) -> None:
    async with opened(tmp_path) as jobs:
        job = await started(jobs, tmp_path, "true")
        assert [mine.id for mine in jobs.listed(ANN)] == [mine.id for mine in jobs.listed(ANN, SESSION)] == [job.id]
        assert jobs.listed("bob") == jobs.listed(ANN, "ses_2") == []
        for look in (jobs.glance(job.id, "bob"), jobs.cancel(job.id, "bob")):
            with pytest.raises(NoSuchJob):
                await look
        with pytest.raises(NoSuchJob):
            jobs.watch(job.id, "bob")
        await end_of(jobs, job.id)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../jobs", "job_/../../x", "/etc/passwd", "job_" + "0" * 20, "x" * 9999]
)
async def test_a_bad_id_finds_nothing(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path) as jobs:
        with pytest.raises(NoSuchJob) as refused:
            await jobs.output(name, ANN, offset=0, size=10)
    assert len(str(refused.value)) < 100


async def test_only_so_many_run_at_a_time(tmp_path: Path) -> None:
    async with opened(tmp_path, limit=1) as jobs:
        job = await started(jobs, tmp_path, endless())
        with pytest.raises(JobsFailed, match=f"wait for one to end, or cancel one .{job.id}"):
            await started(jobs, tmp_path, "true")
        await jobs.start("true", session="s", principal="bob", sandbox=LEVELS[0], workspace=tmp_path)
        await jobs.cancel(job.id, ANN)
        await end_of(jobs, (await started(jobs, tmp_path, "true")).id)
    async with opened(tmp_path, limit=0) as jobs:
        with pytest.raises(JobsFailed, match="DRAGOMAN_JOB_LIMIT"):
            await started(jobs, tmp_path, "true")


@pytest.mark.parametrize(
    ("sandbox", "where", "command", "complaint"),
    [
        (NO_SANDBOX, "work", "true", "nothing was set up to run them in"),
        (LEVELS[0], "missing", "true", "could not be started in .*missing: No such file"),
        (LEVELS[0], "work", "echo \ud800", "character at 5 is a lone surrogate"),
    ],
)
async def test_what_cannot_start_says_why(
    tmp_path: Path, sandbox: Sandbox | NoSandbox, where: str, command: str, complaint: str
) -> None:
    (tmp_path / "work").mkdir()
    async with opened(tmp_path) as jobs:
        with pytest.raises(JobsFailed, match=complaint):
            await jobs.start(command, session="s", principal=ANN, sandbox=sandbox, workspace=tmp_path / where)
        assert jobs.listed(ANN) == []
    assert not list((tmp_path / "data").rglob("job_*")), "nothing is left of it"


async def test_a_data_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    jobs = Jobs(tmp_path / "file" / "jobs")
    await jobs.open()
    with pytest.raises(JobsFailed, match=r"Not a directory.*Make .*file/jobs writable"):
        await started(jobs, tmp_path, "true")
    assert jobs.listed(ANN) == []
    await jobs.close()


async def test_the_oldest_that_have_ended_are_forgotten(tmp_path: Path) -> None:
    ended: asyncio.Queue[Job] = asyncio.Queue()
    async with opened(tmp_path, ended, limit=KEPT + 2, kept=KEPT) as jobs:
        await started(jobs, tmp_path, endless())
        first = await started(jobs, tmp_path, "true")
        await ended.get()
        for _ in [await started(jobs, tmp_path, "true") for _ in range(KEPT)]:
            await ended.get()
        last = await started(jobs, tmp_path, "true")
        await end_of(jobs, last.id)
        with pytest.raises(NoSuchJob):
            jobs.get(first.id, ANN)
        assert len(jobs.listed(ANN)) in (KEPT + 1, KEPT + 2), "the last one may not have been told of yet"
        await jobs.forget(ANN, SESSION)  # the end of the one that runs pushes out another
        assert jobs.listed(ANN) == []
    assert not list((tmp_path / "data").rglob("job_*"))


async def test_nothing_is_left_of_many_jobs(tmp_path: Path) -> None:
    pids: list[int] = []

    async def one(jobs: Jobs) -> Job:
        job = await started(jobs, tmp_path, "echo x")
        assert job.pid
        pids.append(job.pid)
        return (await end_of(jobs, job.id)).job

    async with opened(tmp_path) as jobs:
        await one(jobs)
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        await asyncio.gather(*(one(jobs) for _ in range(6)))
        assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208
    assert len(pids) == 7 and not set(map(str, pids)) & set(os.listdir("/proc")), "not even a zombie"  # noqa: PTH208


async def test_many_watchers_share_one_look(tmp_path: Path) -> None:
    async with opened(tmp_path) as jobs:
        job = await started(jobs, tmp_path, "echo x; until [ -e go ]; do read -t 0.05 <> <(:); done; echo y")
        watching = [asyncio.create_task(end_of(jobs, job.id)) for _ in range(50)]
        await until(jobs, job.id, lambda glance: glance.tail == ("x",))
        assert sum(task.get_name() == f"look at {job.id}" for task in asyncio.all_tasks()) == 1
        (tmp_path / "work" / "go").touch()
        assert {end.tail for end in await asyncio.gather(*watching)} == {("x", "y")}


def test_on_the_loop_of_the_server(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as jobs:
            job = await started(jobs, tmp_path, "echo x; exec sleep 1000")
            await until(jobs, job.id, lambda glance: glance.tail == ("x",))
            assert (await jobs.cancel(job.id, ANN)).state is JobState.CANCELLED
            end = await end_of(jobs, (await started(jobs, tmp_path, "exit 9")).id)
            assert end.job.exit_code == 9

    uvloop.run(main())


async def test_a_job_can_be_cancelled_while_it_starts(tmp_path: Path) -> None:
    sleeper = endless()
    async with opened(tmp_path) as jobs:
        starting = asyncio.create_task(started(jobs, tmp_path, f"exec {sleeper}"))
        await asyncio.sleep(0)
        assert (await jobs.cancel(jobs.listed(ANN)[0].id, ANN)).state is JobState.CANCELLED
        await starting
    assert all_gone(sleeper)


async def test_whoever_gives_up_waiting_for_a_start_still_has_the_job(tmp_path: Path) -> None:
    async with opened(tmp_path) as jobs:
        starting = asyncio.create_task(started(jobs, tmp_path, "echo x"))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert (await end_of(jobs, jobs.listed(ANN)[0].id)).tail == ("x",)
