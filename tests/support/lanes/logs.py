"""Logs of runs for the tests of lanes: golden ones, and those made of events by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from app.core.events import AgentEvent, ApprovalRequired, RunFinished, RunStarted, ToolHanded, Usage, encode
from app.storage.runs import EventRow
from routes.lanes.lane import Encoder, LaneRequest, Turn
from tests.support.golden.playing import RUNS

RUN = "run_00000000000000000001"
STARTED = RunStarted(RUN, "ses_00000000000000000001", "scripted", [], {})
USAGE = Usage(100, 12, 100, 12, measured=True, cached_tokens=64)
LOGS = sorted(path.stem for path in RUNS.glob("*.sse"))


def rows_of(*events: AgentEvent) -> list[EventRow]:
    return [EventRow(RUN, seq, event.type, encode(event)) for seq, event in enumerate(events, 1)]


def finished(reason: str = "answered") -> RunFinished:
    return RunFinished(reason, "", 1, 0, {"prompt_tokens": 100, "completion_tokens": 12, "measured": True})


def golden_rows(name: str) -> list[EventRow]:
    """The first run of a golden log."""
    found = list[EventRow]()
    for block in (RUNS / f"{name}.sse").read_text().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "id" in fields and int(fields["id"]) == len(found) + 1:
            found.append(EventRow(RUN, int(fields["id"]), fields["event"], fields["data"]))
    return found


def turn_of(request: LaneRequest | None = None) -> Turn:
    return Turn(RUN, STARTED.session, 1_700_000_000, "tiny", request or LaneRequest(model="tiny", messages=[]))


def blocks(frames: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream with `event:` lines, each with its data."""
    found = []
    for block in frames.split("\n\n")[:-1]:
        name, data = block.split("\n")
        assert name.startswith("event: ") and data.startswith("data: "), block
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def texts(rows: Iterable[EventRow], kind: str) -> str:
    return "".join(json.loads(row.data)["text"] for row in rows if row.type == kind)


def types(events: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    return [name for name, _ in events]


def handed(rows: Iterable[EventRow]) -> set[str]:
    """The calls that are the client's to run."""
    return {json.loads(row.data)["call"] for row in rows if row.type == ToolHanded.type}


def data_of(frames: str) -> list[dict[str, Any]]:
    """The events of a stream without `event:` lines."""
    found = []
    for block in frames.split("\n\n")[:-1]:
        assert block.startswith("data: ") and "\n" not in block, block
        found.append(json.loads(block.removeprefix("data: ")))
    return found


def streams_of(
    encoder_of: Callable[[Turn], Encoder], turn: Callable[[int], Turn], rows: Sequence[EventRow]
) -> list[str]:
    """The streams of a run for a client that shows approvals: each ends with one, and the next begins behind it."""
    streams, after = list[str](), -1
    while after:
        encoder, frames = encoder_of(turn(max(after, 0))), list[str]()
        after = 0
        for row in rows:
            frames.append(encoder.frames(row))
            if encoder.over:
                after = row.seq if row.type == ApprovalRequired.type else 0
                break
        streams.append("".join(frames))
    return streams
