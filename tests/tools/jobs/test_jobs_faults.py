"""Background jobs when something dies: the server, the supervisor, both; and what the next server makes of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.sandbox.jobs import ANN, LEVELS, end_of, opened, started, until, wait_for_exit
from tests.support.sandbox.processes import alive, all_gone, endless
from tools.jobs.folder import JOB, STATE
from tools.jobs.manager import Jobs
from tools.jobs.records import FollowUp, Job, JobState
from tools.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.anyio

WAITING = "echo begun; until [ -e go ]; do read -t 0.05 <> <(:); done; echo over; exit 7"
SERVER = """
import asyncio, sys
from pathlib import Path
from tests.support.sandbox.jobs import opened, started
from tools.sandbox.sandbox import find_sandbox

async def main(folder, level, command):
    async with opened(Path(folder)) as jobs:
        job = await started(jobs, Path(folder), command, find_sandbox(unsafe=level == "none", levels=[level]))
        print(job.id, job.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(params=LEVELS, ids=lambda found: found.level)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    found: Sandbox = request.param
    return found


def job_of_a_killed_server(folder: Path, sandbox: Sandbox, command: str) -> tuple[str, int]:
    """The job and its supervisor's process id; the server that started it has been killed."""
    arguments = [sys.executable, "-c", SERVER, str(folder), sandbox.level, command]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            job, pid = server.stdout.readline().split()
        finally:
            server.kill()
    return job, int(pid)


async def test_a_job_survives_its_server_and_is_adopted(tmp_path: Path, sandbox: Sandbox) -> None:
    job, _ = job_of_a_killed_server(tmp_path, sandbox, WAITING)
    ended: asyncio.Queue[Job] = asyncio.Queue()
    async with opened(tmp_path, ended) as jobs:
        assert jobs.get(job, ANN).state is JobState.RUNNING
        await until(jobs, job, lambda glance: glance.tail == ("begun",))
        (tmp_path / "work" / "go").touch()
        end = await end_of(jobs, job)
        assert (await ended.get()).id == job
    assert (end.job.state, end.job.exit_code, end.tail) == (JobState.EXITED, 7, ("begun", "over"))
    assert ended.empty()


async def test_a_job_that_ended_while_no_server_ran_is_told_once(tmp_path: Path, sandbox: Sandbox) -> None:
    job, supervisor = job_of_a_killed_server(tmp_path, sandbox, WAITING)
    (tmp_path / "work" / "go").touch()
    wait_for_exit(supervisor)
    ended: asyncio.Queue[Job] = asyncio.Queue()
    async with opened(tmp_path, ended) as jobs:
        end = await end_of(jobs, job)
        assert (end.job.state, end.job.exit_code, end.tail) == (JobState.EXITED, 7, ("begun", "over"))
        assert (await ended.get()).id == job
    for _ in range(2):
        async with opened(tmp_path, ended) as jobs:
            assert jobs.get(job, ANN).follow_up is FollowUp.GIVEN
            assert not jobs.awaits_follow_up(job)
    assert ended.empty()


async def test_an_adopted_job_is_cancelled_whole(tmp_path: Path, sandbox: Sandbox) -> None:
    sleeper = endless()
    job, supervisor = job_of_a_killed_server(tmp_path, sandbox, f"trap '' TERM; setsid {sleeper} & wait")
    async with opened(tmp_path) as jobs:
        assert (await jobs.cancel(job, ANN)).state is JobState.CANCELLED
    wait_for_exit(supervisor)
    assert all_gone(sleeper)


async def test_a_killed_supervisor_takes_its_job_along(tmp_path: Path, sandbox: Sandbox) -> None:
    ended: asyncio.Queue[Job] = asyncio.Queue()
    sleeper = endless()
    async with opened(tmp_path, ended) as jobs:
        job = await started(jobs, tmp_path, f"echo so far; (setsid {sleeper} &); {sleeper}", sandbox)
        await until(jobs, job.id, lambda glance: glance.lines == 1 and len(alive(sleeper)) == 2)
        assert job.pid
        os.kill(job.pid, signal.SIGKILL)
        end = await end_of(jobs, job.id)
        assert (end.job.state, end.job.exit_code, end.tail) == (JobState.LOST, None, ("so far",))
        assert end.job.reason and "supervisor was killed" in end.job.reason
        assert all_gone(sleeper)
        assert (await ended.get()).state is JobState.LOST
    async with opened(tmp_path, ended) as jobs:
        assert jobs.get(job.id, ANN).state is JobState.LOST
    assert ended.empty()


async def test_when_both_were_killed_the_next_server_leaves_nothing_running(tmp_path: Path, sandbox: Sandbox) -> None:
    ended: asyncio.Queue[Job] = asyncio.Queue()
    sleeper = endless()
    job, supervisor = job_of_a_killed_server(tmp_path, sandbox, f"setsid {sleeper} & {sleeper}")
    os.kill(supervisor, signal.SIGKILL)
    wait_for_exit(supervisor)
    async with opened(tmp_path, ended) as jobs:
        assert jobs.get(job, ANN).state is JobState.LOST
        assert all_gone(sleeper)
        assert (await ended.get()).id == job


async def test_a_stopped_supervisor_does_not_stop_a_cancel(tmp_path: Path) -> None:
    sleeper = endless()
    async with opened(tmp_path, cancel_s=0.2) as jobs:
        job = await started(jobs, tmp_path, sleeper)
        assert job.pid
        os.kill(job.pid, signal.SIGSTOP)
        end = await jobs.cancel(job.id, ANN)
        assert (end.state, end.reason) == (JobState.CANCELLED, None), "it said nothing, but why it ended is known"
    assert all_gone(sleeper)


async def test_a_process_that_got_the_number_of_a_supervisor_is_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as jobs:
        job = await started(jobs, tmp_path, "true")
        await end_of(jobs, job.id)
    with subprocess.Popen(["sleep", "1000"]) as other:  # noqa: ASYNC220
        try:
            state = tmp_path / "data" / "jobs" / job.id / STATE
            state.write_text(json.dumps({"state": "running", "pid": other.pid, "started": 0.0}))
            async with opened(tmp_path) as jobs:
                assert jobs.get(job.id, ANN).state is JobState.LOST
                assert (await jobs.cancel(job.id, ANN)).state is JobState.LOST
            assert other.poll() is None
        finally:
            other.kill()


async def test_a_server_that_stops_leaves_its_jobs_running(tmp_path: Path) -> None:
    async with opened(tmp_path) as jobs:
        job = await started(jobs, tmp_path, WAITING)
        watching = jobs.watch(job.id, ANN)
        assert (await anext(watching)).job.under_way
        await jobs.close()
        assert [glance async for glance in watching if not glance.job.under_way] == [], "watchers are let go"
    (tmp_path / "work" / "go").touch()
    assert job.pid
    wait_for_exit(job.pid)
    async with opened(tmp_path) as jobs:
        assert jobs.get(job.id, ANN).exit_code == 7


@pytest.mark.parametrize("written", ["", "{}", "[]", "null", '{"id": "job_1", "follow_up": "maybe"}', "\0"])
async def test_a_job_that_cannot_be_read_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, written: str
) -> None:
    folder = tmp_path / "data" / "jobs" / ("job_" + "1" * 20)
    folder.mkdir(parents=True)
    (folder / JOB).write_text(written)
    async with opened(tmp_path) as jobs:
        assert jobs.listed(ANN) == []
        await end_of(jobs, (await started(jobs, tmp_path, "true")).id)
    assert "cannot be read" in caplog.text and folder.exists()


async def test_what_had_not_begun_when_the_server_was_killed_leaves_no_trace(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "jobs" / ("job_" + "1" * 20)
    folder.mkdir(parents=True)
    async with opened(tmp_path) as jobs:
        assert jobs.listed(ANN) == []
    assert not folder.exists()


async def test_who_has_been_told_of_an_end_is_not_to_be_told_again(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path / "data" / "jobs")
    await jobs.open()
    job = await started(jobs, tmp_path, "true")
    await end_of(jobs, job.id)
    assert jobs.awaits_follow_up(job.id) and not jobs.awaits_follow_up("job_of_nobody")
    await jobs.set_follow_up(job.id, FollowUp.GIVEN)
    assert not jobs.awaits_follow_up(job.id)
    await jobs.close()


async def test_a_job_holds_nothing_of_the_server(tmp_path: Path, sandbox: Sandbox) -> None:
    """A socket that a job went on holding would keep the next server from its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        async with opened(tmp_path) as jobs:
            job = await started(
                jobs, tmp_path, "for file in /proc/$$/fd/*; do readlink $file; done; echo looked; sleep 1000", sandbox
            )
            glance = await until(jobs, job.id, lambda glance: glance.bytes > 0)
            assert job.pid
            held = {os.readlink(f"/proc/{job.pid}/fd/{number}") for number in os.listdir(f"/proc/{job.pid}/fd")}  # noqa: PTH115, PTH208
            assert not [file for file in {*held, *glance.tail} if file.startswith("socket:")]
            environment = Path(f"/proc/{job.pid}/environ").read_text()  # noqa: ASYNC240
            assert environment.startswith("PYTHONPATH=") and environment.count("\0") == 1
            await jobs.cancel(job.id, ANN)
