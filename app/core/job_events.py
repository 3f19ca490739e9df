"""The events of a background job: one frozen struct per event, its wire name written out."""

from __future__ import annotations

import json
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import asdict

from tools.jobs.records import Glance


class JobProgress(Struct, frozen=True):
    """Output of a running job: `tail` holds the last lines, at most 12; `lines` and `bytes` count all output so far."""

    type: ClassVar[str] = "job.progress"
    job: str
    elapsed_s: float
    tail: list[str]
    lines: int
    bytes: int


class JobFinished(Struct, frozen=True):
    """The end of a job: `state` is `exited`, `cancelled`, `timed_out`, `failed` or `lost`. The last event of a job."""

    type: ClassVar[str] = "job.finished"
    job: str
    state: str
    exit_code: int | None
    tail: list[str]
    duration_s: float


JobEvent = JobProgress | JobFinished


def job_event(glance: Glance) -> JobEvent:
    job = glance.job
    tail = list(glance.tail)
    if job.under_way:
        return JobProgress(job.id, glance.elapsed_s, tail, glance.lines, glance.bytes)
    return JobFinished(job.id, job.state.value, job.exit_code, tail, glance.elapsed_s)


def encode_job_event(event: JobEvent) -> str:
    """The `data:` line's JSON, ASCII only."""
    return json.dumps({"type": event.type} | asdict(event))
