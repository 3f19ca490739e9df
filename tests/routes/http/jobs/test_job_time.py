"""Background jobs and the seconds of tools that somebody may use in a day."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.budgets import DAY, refused_by_budget, used_of_budget
from tests.support.models.replies import in_background, says
from tests.support.server.background_jobs import WAIT, job_of
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio


async def test_a_job_ends_with_its_person_s_time_and_no_other_begins(tmp_path: Path) -> None:
    provider = Scripted([in_background("sleep 600"), says("It runs.")])
    async with asyncio.timeout(60), serving(tmp_path, provider, tool_seconds_per_day="2") as served:
        _, job = await job_of(served)
        while (state := (await served.client.get(f"/jobs/{job}")).json())["ended"] is None:
            pass  # each request waits; the test is bounded
        assert state["state"] == "cancelled"
        while (found := await used_of_budget(served, DAY))["reserved"]:
            pass
        assert 2 <= found["used"] < 60
        assert (await refused_by_budget(served))[0]["budget"] == DAY


async def test_a_job_is_charged_once_though_servers_come_and_go(tmp_path: Path) -> None:
    provider = Scripted([in_background(WAIT), says("It runs.")])
    async with asyncio.timeout(60):
        async with serving(tmp_path, provider, job_follow_up="false") as served:
            _, job = await job_of(served)
        async with serving(tmp_path, provider, job_follow_up="false") as served:
            before = (await used_of_budget(served, DAY))["used"]
            while not (await used_of_budget(served, DAY))["reserved"]:
                pass
            (tmp_path / "work" / "go").touch()
            while (state := (await served.client.get(f"/jobs/{job}")).json())["ended"] is None:
                pass
            while (found := await used_of_budget(served, DAY))["reserved"]:
                pass
            assert before < found["used"] <= before + state["elapsed_s"] + 5, "the call's own time and the job's"
        async with serving(tmp_path, provider, job_follow_up="false") as served:
            assert await used_of_budget(served, DAY) == found
