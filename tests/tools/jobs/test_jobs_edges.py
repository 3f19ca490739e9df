"""Background jobs at the edges: what cannot start or be kept, and what may be forgotten."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.sandbox.jobs import ANN, LIMIT_S, SESSION, UNBOXED, end_of, opened, started
from tests.support.sandbox.processes import all_gone, endless
from tools.jobs.folder import JOB, STATE
from tools.jobs.launch import launch
from tools.jobs.records import FollowUp, Job, JobsFailed, JobState
from tools.sandbox.sandbox import NoSandbox

pytestmark = pytest.mark.anyio


async def test_an_end_of_long_ago_is_told_before_it_is_forgotten(tmp_path: Path) -> None:
    async with opened(tmp_path) as jobs:
        job = await started(jobs, tmp_path, "true")
        await end_of(jobs, job.id)
    state = tmp_path / "data" / "jobs" / job.id / STATE
    state.write_text(json.dumps(json.loads(state.read_bytes()) | {"ended": 1.0}))
    ended: asyncio.Queue[Job] = asyncio.Queue()
    async with opened(tmp_path, ended) as jobs:
        assert (await ended.get()).id == job.id


async def test_a_start_that_fails_lets_go_of_who_watches_and_cancels_it(tmp_path: Path) -> None:
    async with opened(tmp_path, cancel_s=LIMIT_S) as jobs:
        nowhere = tmp_path / "missing"
        start = jobs.start("true", session=SESSION, principal=ANN, sandbox=UNBOXED, workspace=nowhere)
        starting = asyncio.create_task(start)
        await asyncio.sleep(0)
        job = jobs.listed(ANN)[0].id
        cancelling = asyncio.create_task(jobs.cancel(job, ANN))
        watching = asyncio.create_task(end_of(jobs, job))
        with pytest.raises(JobsFailed):
            await starting
        assert (await cancelling).state is (await watching).job.state is JobState.FAILED


def test_a_supervisor_that_cannot_say_so_leaves_no_command_behind(tmp_path: Path) -> None:
    class Full(type(tmp_path)):  # type: ignore[misc]
        """A folder in which the state cannot be written."""

        def mkdir(self, *_: object, **__: object) -> None:
            Path(self, STATE).mkdir(parents=True)

    assert not isinstance(UNBOXED, NoSandbox)
    sleeper = endless()
    job = Job("job_1", SESSION, ANN, sleeper, 0, 60, FollowUp.OFF)
    with pytest.raises(JobsFailed, match=r"supervisor did not start: .*directory"):
        launch(Full(tmp_path / job.id), job, f"{sleeper} & {sleeper}".encode(), UNBOXED, tmp_path)
    assert all_gone(sleeper)


async def test_how_a_job_ended_is_kept_on_a_full_disk(tmp_path: Path) -> None:
    async with opened(tmp_path) as jobs:
        job = await started(jobs, tmp_path, "until [ -e go ]; do read -t 0.05 <> <(:); done; exit 7")
        (tmp_path / "data" / "jobs" / job.id / f"{STATE}.new").mkdir()
        (tmp_path / "work" / "go").touch()
        end = (await end_of(jobs, job.id)).job
        assert (end.state, end.exit_code) == (JobState.EXITED, 7)


async def test_a_full_disk_does_not_keep_a_job_from_being_cancelled(tmp_path: Path) -> None:
    sleeper = endless()
    async with opened(tmp_path) as jobs:
        job = await started(jobs, tmp_path, sleeper)
        (tmp_path / "data" / "jobs" / job.id / f"{JOB}.new").mkdir()
        assert (await jobs.cancel(job.id, ANN)).state is JobState.CANCELLED
    assert all_gone(sleeper)
