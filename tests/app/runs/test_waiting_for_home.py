"""Runs that wait for their node too long, and jobs whose server has been away too long."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import to_builtins

from app.core.messages import Message
from app.replicas.nodes import HOME_GONE, JobRecord, WaitingRun
from app.runs.shared.home_watch import HomeWatch, limit_in
from app.runs.shared.homes import change_fields, change_of, fields_of, turn_of
from app.runs.shared.shared_jobs import LOST_S, glance_of
from app.storage.runs import KeyRow, RunRow
from app.transcript.run_request import IdempotencyKey, RunRequest
from tools.jobs.records import FollowUp, Glance, Job, JobState

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("away_s", "state"),
    [
        (None, JobState.RUNNING),
        (0.0, JobState.UNREACHABLE),
        (LOST_S, JobState.UNREACHABLE),
        (LOST_S + 1, JobState.LOST),
    ],
)
def test_a_job_without_a_server_is_out_of_reach_and_then_lost(away_s: float | None, state: JobState) -> None:
    job = Job("job_1", "ses_1", "ann", "make", 1.0, 60.0, FollowUp.OFF, state=JobState.RUNNING, started=2.0)
    text = json.dumps(to_builtins(Glance(job, 0.0, ("one",), 1, 4)))
    seen = glance_of(JobRecord(job.id, "a", "rep_1", "ann", "ses_1", True, text, away_s))
    assert (seen.job.state, seen.tail, seen.bytes) == (state, ("one",), 4)
    assert seen.job.under_way is (state is not JobState.LOST)


async def test_a_run_that_waits_for_longer_than_it_may_last_is_ended() -> None:
    rows = {name: RunRow(name, "ses_1", "ann", "m", "running", 0.0, policy='{"time_limit_s": 5}') for name in "ab"}
    now, ended, reported = time.time(), list[tuple[str, str]](), list[str]()

    async def waiting() -> list[WaitingRun]:
        return [WaitingRun("a", "gone", now - 6), WaitingRun("b", "gone", now)]

    async def end(run: str, why: str) -> bool:
        ended.append((run, why))
        return True

    async def hold(run: str) -> bool:
        reported.append(run)
        return False

    async def find(run: str) -> RunRow:
        return rows[run]

    async def nothing(*_: Any) -> int:
        return 0

    async def no_events(*_: Any) -> list[Any]:
        return []

    store: Any = SimpleNamespace(run=find, last_seq=nothing, events=no_events)
    replicas: Any = SimpleNamespace(nodes=SimpleNamespace(waiting=waiting, end=end, hold=hold))
    journal: Any = None
    watch = HomeWatch(store, journal, replicas, lambda row: limit_in(row, 7200))
    await watch.look()
    assert (ended, reported) == ([], []), "its server may only be started again"
    await watch.look()
    assert (ended, reported) == ([("a", HOME_GONE)], ["b"])


def test_a_request_arrives_at_another_server_as_it_was() -> None:
    turn = RunRequest(
        "Hi",
        "ses_1",
        "queue",
        IdempotencyKey("k", "b"),
        60.0,
        labels=["secret"],
        run="r",
        history=[Message("user", "x")],
    )
    there = turn_of(json.loads(json.dumps(fields_of(turn))))
    assert json.dumps(fields_of(there)) == json.dumps(fields_of(turn))
    assert (there.key, there.history[0]) == (turn.key, turn.history[0])
    change = KeyRow("ann", "k", "b", "run_1", 1.0)
    kind, fields = change_fields(change)
    assert change_of(kind, json.loads(json.dumps(fields))) == change
