"""Background jobs over HTTP: a model starts one, people watch and cancel it, and its end begins a turn."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import httpx2
import pytest

from app.models.scripted import Scripted
from app.runs.composition.unattended import UnattendedRuns
from app.storage.principals import LOCAL_USER
from app.storage.tokens import TokenRow
from routes.access.token_text import fingerprint
from tests.support.models.replies import in_background, says
from tests.support.sandbox.processes import all_gone, endless
from tests.support.server.background_jobs import WAIT, job_of, next_run, watched_job
from tests.support.server.serving import serving, until

pytestmark = pytest.mark.anyio


async def test_a_job_from_start_to_follow_up(tmp_path: Path) -> None:
    provider = Scripted([in_background(f"echo one; {WAIT}; echo two; exit 3"), says("It runs."), says("It failed.")])
    async with asyncio.timeout(60), serving(tmp_path, provider) as served:
        session, job = await job_of(served)
        state = (await served.client.get(f"/jobs/{job}")).json()
        assert (state["state"], state["exit_code"], state["session"]) == ("running", None, session)
        watching = asyncio.create_task(watched_job(served, job))
        (tmp_path / "work" / "go").touch()
        *progress, finished = await watching
        assert {event["type"] for event in progress} <= {"job.progress"}
        assert set(finished) == {"type", "job", "state", "exit_code", "tail", "duration_s"}
        assert (finished["type"], finished["job"], finished["state"]) == ("job.finished", job, "exited")
        assert (finished["exit_code"], finished["tail"]) == (3, ["one", "two"])
        assert await watched_job(served, job) == [finished], "who comes late hears of the end"
        late = await served.client.get(f"/jobs/{job}/events")
        assert late.text.startswith("retry: 1000\nid: finished\nevent: job.finished\ndata: ")
        heard = await served.client.get(f"/jobs/{job}/events", headers={"Last-Event-ID": "finished"})
        assert (heard.status_code, heard.content) == (204, b""), "or a browser would come back for ever"

        events = await next_run(served, session)
        assert events[-1]["type"] == "run.finished" and events[-1]["text"] == "It failed."
        assert events[0]["limits"]["max_rounds"] == 12
        await UnattendedRuns(served.services.factory).start_follow_up(
            served.services.jobs.get(job, LOCAL_USER.name), "Again?"
        )
        runs = (await served.client.get(f"/sessions/{session}")).json()["runs"]
        assert len(runs) == 2, "as after a kill between the begin and the note of it"
        told = provider.requests[-1].messages[-1].text
        assert f"{job} has ended" in told and "exit code 3" in told and "one\ntwo" in told
        state = (await served.client.get(f"/jobs/{job}")).json()
        assert (state["state"], state["exit_code"], state["tail"], state["lines"]) == ("exited", 3, ["one", "two"], 2)


async def test_progress_has_what_a_page_shows(tmp_path: Path) -> None:
    provider = Scripted([in_background(f"echo one; {WAIT}"), says("It runs.")])
    async with asyncio.timeout(60), serving(tmp_path, provider, job_follow_up="false") as served:
        _, job = await job_of(served)
        async with served.client.stream("GET", f"/jobs/{job}/events") as response:
            async for message in httpx2.EventSource(response):
                event = json.loads(message.data)
                if event["type"] == "job.finished":
                    break
                assert set(event) == {"type", "job", "elapsed_s", "tail", "lines", "bytes"}
                assert message.event == event["type"] and event["job"] == job
                if event["tail"] == ["one"]:
                    assert (event["lines"], event["bytes"]) == (1, 4)
                    (tmp_path / "work" / "go").touch()
        assert event["state"] == "exited"


async def test_a_paused_server_begins_no_turn_until_it_goes_on(tmp_path: Path) -> None:
    provider = Scripted([in_background(WAIT), says("It runs."), says("It is over.")])
    async with asyncio.timeout(60), serving(tmp_path, provider) as served:
        session, job = await job_of(served)
        assert (await served.client.post("/pause")).json() == {"paused": True}
        (tmp_path / "work" / "go").touch()
        assert (await watched_job(served, job))[-1]["type"] == "job.finished"
        assert len((await served.client.get(f"/sessions/{session}")).json()["runs"]) == 1
        assert served.services.jobs.awaits_follow_up(job), "it is not forgotten"
        assert (await served.client.post("/resume")).json() == {"paused": False}
        assert (await next_run(served, session))[-1]["text"] == "It is over."


async def test_cancel_over_http(tmp_path: Path) -> None:
    sleeper = endless()
    provider = Scripted([in_background(f"trap '' TERM; {sleeper} & {sleeper}"), says("It runs.")])
    async with asyncio.timeout(60), serving(tmp_path, provider) as served:
        session, job = await job_of(served)
        for _ in range(2):
            ended = (await served.client.post(f"/jobs/{job}/cancel")).json()
            assert (ended["id"], ended["state"]) == (job, "cancelled")
        assert all_gone(sleeper)
        assert len((await served.client.get(f"/sessions/{session}")).json()["runs"]) == 1, "nobody is told"


async def test_a_deleted_session_takes_its_jobs_along(tmp_path: Path) -> None:
    sleeper = endless()
    provider = Scripted([in_background(sleeper), says("It runs.")])
    async with asyncio.timeout(60), serving(tmp_path, provider) as served:
        session, job = await job_of(served)
        assert (await served.client.delete(f"/sessions/{session}")).status_code == 204
        assert all_gone(sleeper)
        assert (await served.client.get(f"/jobs/{job}")).status_code == 404, "and what they wrote"


async def test_a_run_under_way_leaves_no_job_behind_when_its_session_is_deleted(tmp_path: Path) -> None:
    sleeper = endless()
    stubborn = in_background(f"trap '' TERM; {endless()}")
    provider = Scripted([stubborn, says("It runs."), says(f"```bash\n{WAIT}\n```\n"), in_background(sleeper), says("")])
    async with asyncio.timeout(60), serving(tmp_path, provider) as served:
        session, _ = await job_of(served)
        async with aclosing(served.turn(message="Another.", session=session)) as turn:
            await until(turn, "tool.progress")
            deleting = asyncio.create_task(served.client.delete(f"/sessions/{session}"))
            (tmp_path / "work" / "go").touch()
            assert (await deleting).status_code == 204
        assert (await served.client.get("/jobs")).json() == {"jobs": []}
        assert all_gone(sleeper)


async def test_a_job_goes_on_while_no_server_runs(tmp_path: Path) -> None:
    provider = Scripted([in_background(f"{WAIT}; echo done"), says("It runs."), says("Good.")])
    async with asyncio.timeout(60), serving(tmp_path, provider) as served:
        session, job = await job_of(served)
    async with asyncio.timeout(60), serving(tmp_path, provider) as served:
        assert (await served.client.get(f"/jobs/{job}")).json()["state"] == "running"
        (tmp_path / "work" / "go").touch()
        assert (await next_run(served, session))[-1]["text"] == "Good."


@pytest.mark.parametrize("name", ["job_1", "%2e%2e", "..%2f..%2fdragoman.db", "job_" + "0" * 20, "x" * 3000])
@pytest.mark.parametrize(("method", "end"), [("GET", ""), ("GET", "/events"), ("POST", "/cancel")])
async def test_there_is_no_such_job(tmp_path: Path, method: str, end: str, name: str) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([])) as served:
        response = await served.client.request(method, f"/jobs/{name}{end}")
    assert response.status_code == 404 and response.json()["error"]["code"] == "not_found"
    assert len(response.text) < 300


async def test_jobs_of_others_do_not_exist(tmp_path: Path) -> None:
    provider = Scripted([in_background("true"), says("It runs."), says("Done.")])
    async with asyncio.timeout(60), serving(tmp_path, provider) as served:
        for name in ("ann", "bob"):
            await served.services.store.write([TokenRow(fingerprint(name), name, "admin", 0)])
        served.client.headers["authorization"] = "Bearer ann"
        session, job = await job_of(served)
        assert (await next_run(served, session))[-1]["text"] == "Done.", "told as the one who started it"
        bob = {"authorization": "Bearer bob"}
        assert (await served.client.get("/jobs", headers=bob)).json() == {"jobs": []}
        for method, end in (("GET", ""), ("GET", "/events"), ("POST", "/cancel")):
            assert (await served.client.request(method, f"/jobs/{job}{end}", headers=bob)).status_code == 404
