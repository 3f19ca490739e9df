"""Background jobs: what runs and ran, its output live, and a way to stop it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.core.job_events import JobFinished, encode_job_event, job_event
from app.redaction.redactor import Redactor
from routes.protocol.errors import ASCIIResponse
from routes.protocol.route import RESUMES, Route, tagged
from routes.protocol.sse import RETRY, EventStreamResponse
from routes.services import current_principal, services_of
from tools.jobs.manager import Jobs
from tools.jobs.records import Glance, Job

LAST_ID = "finished"  # of the last event: a client that resumes with it has every event
SHOWN = ("id", "session", "command", "state", "created", "started", "ended", "exit_code", "reason", "time_limit_s")


def job_fields(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in SHOWN} | {"elapsed_s": job.elapsed_s}


def seen(glance: Glance) -> dict[str, Any]:
    return job_fields(glance.job) | {"tail": list(glance.tail), "lines": glance.lines, "bytes": glance.bytes}


async def list_jobs(request: Request) -> Response:
    """Your background jobs. Oldest first."""
    jobs = await services_of(request).jobs.all_of(current_principal(request).name)
    return ASCIIResponse({"jobs": [job_fields(job) for job in jobs]})


async def show_job(request: Request) -> Response:
    """A job with its last lines. State, exit code and duration, too."""
    jobs = services_of(request).jobs
    return ASCIIResponse(seen(await jobs.glance(request.path_params["job"], current_principal(request).name)))


async def cancel_job(request: Request) -> Response:
    """End a job with its processes. Answers when everything that it started is gone. Harmless on one that has ended."""
    jobs, principal = services_of(request).jobs, current_principal(request).name
    job = await jobs.cancel(request.path_params["job"], principal)
    return ASCIIResponse(seen(await jobs.glance(job.id, principal)))


async def job_events(request: Request) -> Response:
    """The live output of a job.

    `job.progress` events, then exactly one `job.finished`; 204 for a browser that reconnects after that.
    """
    services, principal = services_of(request), current_principal(request).name
    jobs = services.jobs
    job = await jobs.look_up(request.path_params["job"], principal)
    if not job.under_way and request.headers.get("last-event-id") == LAST_ID:
        return Response(status_code=204)  # a browser's EventSource would come back for ever
    with services.presence.place(current_principal(request)) as place:
        return EventStreamResponse(place, _frames(jobs, job.id, principal, services.redactor))


async def _frames(jobs: Jobs, job: str, principal: str, redactor: Redactor) -> AsyncGenerator[bytes, None]:
    prefix = RETRY
    async with aclosing(jobs.watch(job, principal)) as glances:
        async for glance in glances:
            event = redactor.redact_value(job_event(glance))
            if isinstance(event, JobFinished):
                prefix += f"id: {LAST_ID}\n".encode()
            yield prefix + f"event: {event.type}\ndata: {encode_job_event(event)}\n\n".encode()
            prefix = b""


ROUTES = tagged(
    "Jobs",
    Route("GET /jobs", list_jobs, rights="user", answer={"jobs": ["@Job"]}),
    Route("GET /jobs/{job}", show_job, rights="owner", answer="@ShownJob"),
    Route("GET /jobs/{job}/events", job_events, rights="owner", statuses=(200, 204), headers=RESUMES, stream="job"),
    Route("POST /jobs/{job}/cancel", cancel_job, rights="owner", answer="@ShownJob"),
)
