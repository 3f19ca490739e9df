"""A background job and a whole server that is killed or stopped: the next one adopts it and tells its session, once."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import httpx2
import pytest

from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import Act, stream, upstream
from tests.support.sandbox.jobs import wait_for_exit
from tests.support.sandbox.processes import all_gone, endless
from tests.support.server.background_jobs import WAIT
from tests.support.server.dragoman_process import server

pytestmark = pytest.mark.anyio


def told(text: str) -> Act:
    return stream(says(text), chunk(finish="stop"), DONE)


async def begun(client: httpx2.AsyncClient) -> tuple[str, str]:
    """The session of a turn that starts a job, and the job."""
    answer = await client.post("/chat", json={"message": "Do it in the background."})
    assert answer.text.count("event: run.finished") == 1, answer.text
    [job] = (await client.get("/jobs")).json()["jobs"]
    assert job["state"] == "running"
    return answer.headers["x-session-id"], job["id"]


async def runs_of(client: httpx2.AsyncClient, session: str) -> list[str]:
    return [run["id"] for run in (await client.get(f"/sessions/{session}")).json()["runs"]]


async def follow_up(client: httpx2.AsyncClient, session: str) -> str:
    """The session's second run, to its end."""
    while len(runs := await runs_of(client, session)) < 2:
        pass  # each request waits; the test is bounded
    return (await client.get(f"/runs/{runs[1]}/events")).text


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "ends meanwhile"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_job_and_a_server_that_dies(tmp_path: Path, how: signal.Signals, *, goes_on: bool) -> None:
    (tmp_path / "work").mkdir()
    sleeper = endless()
    acts = [told(f"```bash\n#!bg\n{sleeper} &\necho one; {WAIT}; echo two; exit 3\n```\n"), told("On its way.")]
    async with asyncio.timeout(90), upstream(*acts, told("It failed with 3."), chats=True) as model:
        async with server(tmp_path, model.base_url) as (client, process):
            session, job = await begun(client)
            process.send_signal(how)
            await process.wait()
        record = json.loads((tmp_path / "data" / "jobs" / job / "state.json").read_bytes())
        assert record["state"] == "running"
        if not goes_on:
            (tmp_path / "work" / "go").touch()
            await asyncio.to_thread(wait_for_exit, record["pid"])
        async with server(tmp_path, model.base_url) as (client, _):
            if goes_on:
                assert (await client.get(f"/jobs/{job}")).json()["state"] == "running"
                (tmp_path / "work" / "go").touch()
            assert '"text": "It failed with 3."' in (await follow_up(client, session))
            message = model.asked[-1].json["messages"][-1]["content"]
            assert f"{job} has ended" in message and "exit code 3" in message and "one\ntwo" in message
        async with server(tmp_path, model.base_url) as (client, _):
            assert len(await runs_of(client, session)) == 2, "told again"
            assert (await client.get(f"/jobs/{job}")).json()["exit_code"] == 3
        assert len(model.asked) == 3
    assert all_gone(sleeper)


async def test_a_server_that_stops_lets_go_of_who_watches_a_job(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    acts = [told(f"```bash\n#!bg\necho one; {WAIT}\n```\n"), told("On its way.")]
    async with asyncio.timeout(60), upstream(*acts, chats=True) as model:
        async with server(tmp_path, model.base_url) as (client, process):
            _, job = await begun(client)
            async with client.stream("GET", f"/jobs/{job}/events") as response:
                seen = b""
                async for block in response.aiter_bytes():
                    if not seen:
                        process.send_signal(signal.SIGTERM)
                    seen += block
            assert b"job.progress" in seen and b"job.finished" not in seen
            assert await process.wait() == 0
        (tmp_path / "work" / "go").touch()
