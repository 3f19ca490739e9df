"""Background jobs over HTTP: begun by a turn, watched, and the runs after their end."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from tests.support.server.histories import shown_session
from tests.support.server.serving import Served

WAIT = "until [ -e go ]; do read -t 0.05 <> <(:); done"


async def job_of(served: Served) -> tuple[str, str]:
    """The session of a turn that starts a job, and the job."""
    events = await served.chat("Do it in the background.")
    [told] = [event for event in events if event["type"] == "tool.finished"]
    assert told["ok"], told
    [job] = (await served.client.get("/jobs")).json()["jobs"]
    assert job["id"] in told["text"] and job["session"] == events[0]["session"]
    return job["session"], job["id"]


async def watched_job(served: Served, job: str) -> list[dict[str, Any]]:
    async with served.client.stream("GET", f"/jobs/{job}/events") as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        return [json.loads(message.data) async for message in httpx2.EventSource(response)]


async def next_run(served: Served, session: str) -> list[dict[str, Any]]:
    """The events of the session's second run, which nobody has asked for."""
    while len(runs := (await served.client.get(f"/sessions/{session}")).json()["runs"]) < 2:
        pass  # each request waits; the test is bounded
    return await served.events(runs[1]["id"])


async def runs_after_jobs(served: Served, runs: int, session: str) -> list[dict[str, Any]]:
    """The runs of the session when no job of it is under way or still to be told of."""
    while True:
        jobs = (await served.client.get("/jobs")).json()["jobs"]
        there: list[dict[str, Any]] = (await shown_session(served, session))["runs"]
        going = any(one["state"] in ("starting", "running") for one in jobs)
        told = not any(served.services.jobs.awaits_follow_up(one["id"]) for one in jobs)
        if told and not going and len(there) >= runs and all(run["ended"] for run in there):
            return there
