"""The frames of recorded runs: digests of what the client of a lane received, event by event, stored with the run.

They are made of the whole log in one form (`rows_for_lanes`), so that they can be made again by a later version.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from app.core.events import TERMINAL
from app.replay.events import Event, rows_for_lanes
from app.runs.recording import parts
from app.storage.changes import Change
from app.storage.runs import EventRow, RunRow
from routes.lanes.catalogue import BY_NAME
from routes.lanes.kept_turns import recorded_turn
from routes.lanes.lane import Encoder

MOST_CHARACTERS = 512 << 10  # of a log, which is gone through at once at its end; of a longer one no frames are kept
MOST_RUNS = 1024  # under way
DIGEST = 4  # bytes


class RecordedFrames:
    """Collects the events of recorded runs of lanes while they are under way."""

    def __init__(self) -> None:
        self._logs: dict[str, list[EventRow]] = {}
        self._sizes: dict[str, int] = {}

    def of_run(self, row: RunRow, events: Sequence[EventRow]) -> Sequence[Change]:
        """Return what is to be stored with these events: the frames' digests, with the last of them."""
        if parts.LANE not in row.policy or not events:
            return ()
        if row.id not in self._logs and len(self._logs) >= MOST_RUNS:  # some that never ended here
            self._drop(next(iter(self._logs)))
        log = self._logs.setdefault(row.id, [])
        size = self._sizes[row.id] = self._sizes.get(row.id, 0) + sum(len(one.data) for one in events)
        if size <= MOST_CHARACTERS:
            log += events
        if events[-1].type not in TERMINAL:
            return ()
        self._drop(row.id)
        if size > MOST_CHARACTERS or log[0].seq != 1:
            return ()
        part = json.loads(row.policy)[parts.LANE]
        frames = frames_of(part, row.id, row.session, row.created, [json.loads(one.data) for one in log])
        return [parts.packed(row.id, time.time_ns() // 1000, parts.FRAMES, frames)]

    def _drop(self, run: str) -> None:
        del self._logs[run], self._sizes[run]


def frames_of(part: Mapping[str, Any], run: str, session: str, created: float, log: Sequence[Event]) -> list[str]:
    """Return a digest of the frames of each event of a log; `part` is the lane's part of the run's policy."""
    lane = BY_NAME.get(part["name"])
    if lane is None:
        return []
    encoder: Encoder = lane.encoder(recorded_turn(dict(part), run, session, created))
    return [_digest(encoder.frames(row)) for row in rows_for_lanes(run, log)]


def _digest(frames: str) -> str:
    return blake2b(frames.encode(), digest_size=DIGEST).hexdigest()
