"""The kill switch: what it ends, and that nothing begins while the server is paused, jobs and MCP servers included."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from app.mcp.servers import McpServers
from app.models.scripted import Scripted
from tests import ROOT
from tests.support.mcp.faulty_servers import is_there
from tests.support.mcp.served import HELPFUL, READS, helper, settled, write_list
from tests.support.models.endpoints import model_server
from tests.support.models.replies import in_background, says
from tests.support.sandbox.jobs import ANN, started
from tests.support.sandbox.processes import all_gone, endless, until_alive
from tests.support.server.background_jobs import job_of, watched_job
from tests.support.server.serving import Served, serving
from tools.jobs.manager import Jobs
from tools.jobs.records import Job, JobsFailed, JobState
from tools.mcp.model import ServerState, Status

pytestmark = pytest.mark.anyio
LIMIT_S = 90
FAULTY = ROOT / "fixtures/mcp/faulty.py"
ALLOWED: dict[str, Any] = {"tools": READS, "mcp_commands_from_api": "true"}


def with_child(sleeper: str, **more: Any) -> dict[str, Any]:
    """A server that has started something in a session of its own."""
    return {"command": sys.executable, "args": [str(FAULTY), "daemon", *sleeper.split()], "eager": True, **more}


async def until_state(served: Served, name: str, state: ServerState) -> Status:
    while (status := served.services.mcp.named(name)).state is not state:
        await served.services.mcp.manager.changed()
    return status


async def pause(served: Served, **wish: bool) -> None:
    assert (await served.client.post("/pause", json=wish)).json() == {"paused": True}


async def resume(served: Served) -> None:
    assert (await served.client.post("/resume")).json() == {"paused": False}


async def test_pausing_with_cancel_ends_jobs_and_mcp_servers_with_all_that_they_started(tmp_path: Path) -> None:
    of_job, of_server = endless(), endless()
    provider = Scripted([in_background(f"setsid {of_job} & {of_job}"), says("It runs."), says("I see.")])
    write_list(tmp_path, helper=with_child(of_server))
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, **ALLOWED) as served:
        before = await until_state(served, "helper", ServerState.READY)
        session, job = await job_of(served)
        await until_alive(of_job)
        await until_alive(of_server)
        await pause(served, cancel=True)
        assert all_gone(of_job) and all_gone(of_server) and not is_there(before.pid)
        assert (await served.client.get(f"/jobs/{job}")).json()["state"] == "cancelled"
        assert served.services.mcp.named("helper").state is ServerState.STOPPED
        await resume(served)
        again = await until_state(served, "helper", ServerState.READY)
        assert again.pid != before.pid, "what runs by itself runs again"
        await until_alive(of_server)
        assert len((await served.client.get(f"/sessions/{session}")).json()["runs"]) == 1, "no run begins for that job"


class Unstoppable:
    """MCP servers that cannot be ended, at once."""

    @property
    def manager(self) -> Unstoppable:
        return self

    async def stop_all(self) -> None:
        raise OSError(5, "no process can be ended")


async def test_what_cannot_be_ended_keeps_nothing_else_alive_and_is_named(tmp_path: Path) -> None:
    sleeper = endless()
    provider = Scripted([in_background(f"trap '' TERM; {sleeper}; {sleeper}"), says("It runs.")])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, **ALLOWED) as served:
        _, job = await job_of(served)
        await until_alive(sleeper)
        real, served.services.mcp = served.services.mcp, cast(McpServers, Unstoppable())
        answer = await served.client.post("/pause", json={"cancel": True})
        served.services.mcp = real
        assert all_gone(sleeper) and served.services.jobs.get(job, "local").state is JobState.CANCELLED
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "not_all_ended")
        message = answer.json()["error"]["message"]
        assert "is paused" in message and "MCP servers." in message and "jobs" not in message
        await pause(served, cancel=True)


class OneStays(Jobs):
    """One of the jobs cannot be ended."""

    stays = ""

    async def cancel(self, job: str, principal: str, *, silent: bool = True) -> Job:
        if job == self.stays:
            raise JobsFailed("It stays.")
        return await super().cancel(job, principal, silent=silent)


async def test_a_job_that_cannot_be_ended_keeps_no_other_alive(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S):
        jobs = OneStays(tmp_path / "data" / "jobs")
        await jobs.open()
        stays = jobs.stays = (await started(jobs, tmp_path, "exec sleep 1000")).id
        others = [(await started(jobs, tmp_path, "exec sleep 1000")).id for _ in range(2)]
        with pytest.raises(ExceptionGroup):
            await jobs.cancel_all()
        assert [jobs.get(one, ANN).state for one in others] == [JobState.CANCELLED] * 2
        jobs.stays = ""
        await jobs.cancel(stays, ANN)
        await jobs.close()


async def test_pausing_alone_lets_run_what_runs(tmp_path: Path) -> None:
    provider = Scripted([in_background("until [ -e go ]; do read -t 0.05 <> <(:); done; echo whole"), says("It runs.")])
    write_list(tmp_path, helper=helper(eager=True))
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, **ALLOWED) as served:
        before = await until_state(served, "helper", ServerState.READY)
        _, job = await job_of(served)
        await pause(served)
        assert served.services.mcp.named("helper").pid == before.pid
        (tmp_path / "work" / "go").touch()
        assert (await watched_job(served, job))[-1]["tail"] == ["whole"]


async def test_nothing_begins_while_the_server_is_paused(tmp_path: Path) -> None:
    added = {"name": "mine", "command": sys.executable, "args": [str(HELPFUL)]}
    write_list(tmp_path, helper=helper(), other=helper())
    async with (
        asyncio.timeout(LIMIT_S),
        model_server("qwen") as server,
        serving(tmp_path, Scripted([says("")]), **ALLOWED) as served,
    ):
        await settled(served, "helper")
        await served.client.post("/mcp/servers/other/disable")
        await pause(served, cancel=True)
        endpoint = {"name": "hosted", "url": server.base_url}
        for path, body in [
            ("/mcp/servers", added),
            ("/mcp/servers/helper/reconnect", None),
            ("/mcp/servers/helper/approve", None),
            ("/mcp/servers/other/enable", None),
            ("/endpoints", endpoint | {"test": True}),
            ("/chat", {"message": "x"}),
        ]:
            refused = await served.client.post(path, json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "paused"), path
            assert "POST /resume" in refused.json()["error"]["message"]
        write_list(tmp_path, helper=helper(), late=helper(eager=True))
        await served.services.mcp.reload()
        late = served.services.mcp.named("late")
        assert (late.state, late.pid) == (ServerState.STOPPED, None)
        assert (await served.client.post("/endpoints", json=endpoint)).status_code == 201
        with pytest.raises(JobsFailed, match="paused"):
            await served.services.jobs.start(
                "true",
                session="s",
                principal="local",
                sandbox=served.services.factory.sandbox,
                workspace=tmp_path / "work",
            )
        assert all(one.pid is None for one in served.services.mcp.status()) and not server.asked
        await resume(served)
        assert (await until_state(served, "late", ServerState.READY)).pid
        while "qwen" not in served.services.models.endpoints["hosted"].listed:
            await asyncio.wait_for(served.client.get("/endpoints"), LIMIT_S)


async def test_a_server_that_was_paused_starts_nothing_when_it_is_started(tmp_path: Path) -> None:
    write_list(tmp_path, helper=helper(eager=True), lazy=helper())
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([]), **ALLOWED) as served:
        await pause(served)
    async with (
        asyncio.timeout(LIMIT_S),
        model_server("qwen") as server,
        serving(tmp_path, None, model_url=server.base_url, **ALLOWED) as served,
    ):
        assert [(one.state, one.pid) for one in served.services.mcp.status()] == [(ServerState.STOPPED, None)] * 2
        assert not server.asked and "paused" in served.services.about_model
        await resume(served)
        await until_state(served, "helper", ServerState.READY)
        assert (await settled(served, "lazy")).tools
        while "qwen" not in served.services.models.endpoint.listed:
            await asyncio.wait_for(served.client.get("/endpoints"), LIMIT_S)


async def test_a_server_that_dies_while_all_is_paused_is_started_again_afterwards(tmp_path: Path) -> None:
    write_list(tmp_path, helper=helper(eager=True))
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([]), **ALLOWED) as served:
        pid = (await until_state(served, "helper", ServerState.READY)).pid
        await pause(served)
        assert pid
        os.kill(pid, signal.SIGKILL)
        stopped = await until_state(served, "helper", ServerState.STOPPED)
        assert "paused" in stopped.error
        await resume(served)
        assert (await until_state(served, "helper", ServerState.READY)).pid != pid
