"""Records of jobs, read from their folders, and parts of their output."""

from __future__ import annotations

import json
import os
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from tools.base.output_buffer import OutputBuffer
from tools.jobs.folder import COUNTS, HEAD, JOB, OUTPUT, STATE, TAIL, place, stretch, write_json

SHOWN_COMMAND = 1_000  # characters of a command that a record keeps; the script has all of it
UNREADABLE = (OSError, ValueError, TypeError, KeyError)  # raised by files that were changed by hand
_TRIES = 6  # a writer in full flight may run over all that is being read: then less is read, nearer to the end
_LOOKED_AT = 32 * 1024  # bytes before the end that the last lines are taken from


class JobsFailed(Exception):
    """A job could not be started, found or read. The message says what to do."""


class NoSuchJob(JobsFailed):
    """No job has this id, or it belongs to another principal."""


class JobState(StrEnum):
    """`tools/jobs/supervisor.py` draws how one follows from the other."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    LOST = "lost"
    UNREACHABLE = "unreachable"  # of another server, which has gone: it may still run there


UNDER_WAY = frozenset({JobState.STARTING, JobState.RUNNING, JobState.UNREACHABLE})


class FollowUp(StrEnum):
    """State of the message that reports the end of a job to its session."""

    PENDING = "pending"
    GIVEN = "given"
    OFF = "off"


class Job(Struct, frozen=True):
    """One background job. Times are Unix times in seconds; `reason` says what went wrong, if something did."""

    id: str
    session: str
    principal: str
    command: str
    created: float
    time_limit_s: float
    follow_up: FollowUp
    state: JobState = JobState.STARTING
    pid: int | None = None
    started: float | None = None
    ended: float | None = None
    duration_s: float | None = None
    exit_code: int | None = None
    reason: str | None = None

    @property
    def under_way(self) -> bool:
        return self.state in UNDER_WAY

    @property
    def elapsed_s(self) -> float:
        """The running time so far, or in all."""
        if self.duration_s is not None:
            return round(self.duration_s, 3)
        return round(max(0.0, time.time() - (self.started or self.created)), 3)


_REQUEST_FIELDS = ("id", "session", "principal", "command", "created", "time_limit_s", "follow_up")


def write_job(folder: Path, job: Job) -> None:
    """Write the request and the follow-up. Raises OSError."""
    fields = asdict(job)
    write_json(str(folder / JOB), {name: fields[name] for name in _REQUEST_FIELDS})


def read_job(folder: Path) -> Job:
    """The job of a folder as its files say now. Raises one of UNREADABLE when they do not."""
    fields = json.loads((folder / JOB).read_bytes())
    job = Job(**fields | {"follow_up": FollowUp(fields["follow_up"])})
    return with_state(folder, job)


def with_state(folder: Path, job: Job) -> Job:
    """The same job with its state as it was written last. Raises one of UNREADABLE."""
    try:
        fields: dict[str, Any] = json.loads((folder / STATE).read_bytes())
    except FileNotFoundError:
        return job
    return replace(job, **fields | {"state": JobState(fields["state"])})


def lost(job: Job, *, cancelled: bool = False) -> Job:
    """Return the state of a job whose supervisor ended without a report: `cancelled`, or for an unknown reason."""
    now = time.time()
    reason = (
        None if cancelled else "its supervisor was killed: how it ended is unknown, and nothing of it runs any more"
    )
    duration = max(0.0, now - (job.started or job.created))
    state = JobState.CANCELLED if cancelled else JobState.LOST
    return replace(job, state=state, ended=now, duration_s=duration, reason=reason)


def failed(job: Job, reason: str) -> Job:
    """Return the state of a job that could not be started."""
    return replace(job, state=JobState.FAILED, ended=time.time(), duration_s=0.0, reason=reason)


def write_state(folder: Path, job: Job) -> None:
    """Write the final state in place of a supervisor that is gone. Raises OSError."""
    fields = asdict(job)
    write_json(str(folder / STATE), {name: value for name, value in fields.items() if name not in _REQUEST_FIELDS})


class OutputPart(Struct, frozen=True):
    """Some of a job's output: `data` begins at byte `start` of `bytes` in all.

    `missing` lines before it are not kept.
    """

    start: int
    data: bytes
    bytes: int
    lines: int
    missing: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class Glance(Struct, frozen=True):
    """A job seen from outside: its last 12 lines at most, and counts of all output so far."""

    job: Job
    elapsed_s: float
    tail: tuple[str, ...] = ()
    lines: int = 0
    bytes: int = 0


def read_part(folder: Path, offset: int, size: int) -> OutputPart:
    """At most `size` bytes from byte `offset` on; a negative offset counts from the end.

    What is no longer kept is skipped: `start` then is where the kept part begins. Raises OSError.
    """
    try:
        file = os.open(folder / OUTPUT, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # not started
        return OutputPart(0, b"", 0, 0)
    try:
        for shorter in range(_TRIES):
            if part := _part(file, offset, size, TAIL >> shorter):
                return part
        total, lines = _counts(file)
        return OutputPart(total, b"", total, lines)
    finally:
        os.close(file)


def _part(file: int, offset: int, size: int, kept: int) -> OutputPart | None:
    """The part as far as it lies in the head or in the last `kept` bytes; None when it was overwritten meanwhile."""
    total, lines = _counts(file)
    start = max(0, total + offset) if offset < 0 else min(offset, total)
    start = max(start, total - kept) if start >= HEAD else start
    data = _stored(file, start, min(size, total - start), total)
    overwritten = _counts(file)[0] - TAIL - start if start >= HEAD else 0
    if overwritten > 0:
        if overwritten >= len(data):
            return None
        data, start = data[overwritten:], start + overwritten
    ends = (_stored(file, 0, HEAD, total), _stored(file, start, total - start, total)) if start > offset >= 0 else ()
    return OutputPart(start, data, total, lines, max(0, lines - sum(map(_lines_of, ends))) if ends else 0)


def _lines_of(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") if data else 0)


def _counts(file: int) -> tuple[int, int]:
    written = os.pread(file, COUNTS.size, 0)
    total, lines = COUNTS.unpack(written) if len(written) == COUNTS.size else (0, 0)
    return total, lines


def _stored(file: int, start: int, size: int, total: int) -> bytes:
    """Bytes up to the first gap: the head ends where the tail does not yet begin."""
    pieces = []
    stop = start + size
    if start < HEAD < total - TAIL:
        stop = min(stop, HEAD)
    while start < stop:
        piece = os.pread(file, min(stretch(start), stop - start), place(start))
        if not piece:  # a disk that was full when it should have been written
            break
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def glance_at(folder: Path, job: Job) -> Glance:
    """Return the job's progress now. Raises OSError."""
    part = read_part(folder, -_LOOKED_AT, _LOOKED_AT)
    output = OutputBuffer()
    output.feed(part.data, final=True)
    return Glance(job, job.elapsed_s, output.tail, part.lines, part.bytes)
