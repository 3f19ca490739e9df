"""Checks if this version takes stored runs as the one did that made them."""

from __future__ import annotations

import time
from collections import Counter
from importlib.metadata import version
from typing import TYPE_CHECKING

from app.runs.recording import parts
from app.storage.changes import StoreFailed
from app.storage.runs import RecordingRow
from routes.cli.doctor.finding import Findings, Subject, ok, problem, skipped, warning

if TYPE_CHECKING:
    from app.storage.store import Store

REPLAY_S = 10.0
SHOW = "`dragoman replay --all` shows them, `dragoman replay RUN` one."


async def replays(subject: Subject) -> Findings:
    """Stored runs: were they recorded by another version, and (--replay) does this one take them otherwise."""
    runs, now = subject.stored.runs, version("dragoman")
    if not runs.ended:
        return ok("no run has ended yet")
    if subject.replay:
        return await _replayed(subject)
    before = _made_by(runs.newest)
    offer = "`dragoman doctor --replay` tries the newest ones, `dragoman replay --all` as many as you say."
    if before and before != now:
        return warning(f"{runs.ended:,} runs, the newest recorded by {before}; this is {now}", offer)
    return ok(f"{runs.ended:,} runs; dragoman doctor --replay tries the newest ones")


def _made_by(newest: bytes | None) -> str:
    if newest is None:
        return ""
    try:
        return parts.unpacked(RecordingRow("", 0, parts.BEGIN, newest), parts.Begin).made_by
    except ValueError:
        return "another version"


async def _replayed(subject: Subject) -> Findings:
    # Only here: they take as long to be loaded as all other checks.
    from app.replay.checking import OTHERWISE, SAME, checked_row
    from app.storage.database import DATABASE, open_store
    from routes.lanes.recorded_frames import frames_of

    settings = subject.settings
    try:
        store: Store = await open_store(settings.data_dir / DATABASE, settings.postgres_url, visitor=True)
    except StoreFailed as failure:
        return problem(str(failure), "See the check of the database.")
    counts, until = Counter[str](), time.monotonic() + REPLAY_S
    try:
        for row in reversed(await store.ended_runs(0)):
            if time.monotonic() > until:
                break
            counts[(await checked_row(store, row, settings, frames_of)).state] += 1
    finally:
        await store.close()
    replayed, otherwise = counts[SAME] + counts[OTHERWISE], counts[OTHERWISE]
    if otherwise:
        return warning(f"of your newest {replayed:,} runs {otherwise:,} would go otherwise", SHOW)
    if not replayed:
        return skipped(f"none of {counts.total():,} runs can be replayed", SHOW)
    return ok(f"of your newest {replayed:,} runs none would go otherwise")
