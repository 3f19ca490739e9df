"""`python -m tests.tasks.record_lanes`: record streams of lanes anew. Then read `git diff fixtures/lanes`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.core.events import RoundStarted, TextDelta, ToolHanded
from app.storage.runs import EventRow
from routes.lanes.answer import Answer
from routes.lanes.catalogue import LANES
from routes.lanes.lane import Lane, stream_only
from tests import ROOT
from tests.support.lanes.logs import STARTED, USAGE, finished, golden_rows, rows_of, turn_of

FOLDER = ROOT / "fixtures" / "lanes"
MESSAGES = [{"role": "user", "content": "Hello"}]
PARTS = [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}]
# The least that a client of a lane sends, to see all that it can be shown; a lane that is not here, what its row shows.
BODIES: Mapping[str, Mapping[str, Any]] = {
    "chat": {"messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}},
    "messages": {"messages": MESSAGES, "max_tokens": 1000, "stream": True},
    "responses": {"input": "Hello", "stream": True},
    "ag_ui": {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1"} | MESSAGES[0]]},
    "ui_message_stream": {"id": "c1", "messages": PARTS},
}
CALLS = (
    *(STARTED, RoundStarted(1), TextDelta("I look.\n")),
    ToolHanded("c1", "get_weather", {"city": 'São Paulo, "centre"', "days": 3}, "hermes"),
    *(ToolHanded("c2", "now", {}, "hermes"), USAGE, finished("client_tools")),
)
LOGS = ("wire_openai_text", "wire_openai_reasoning_and_call", "calls_side_by_side", "token_limit", "model_down")
STORIES: Mapping[str, Sequence[EventRow]] = {
    "client_calls": rows_of(*CALLS),
    **{name: golden_rows(name) for name in LOGS},
}


def recorded(lane: Lane, rows: Sequence[EventRow]) -> dict[str, str]:
    """What a client of the lane receives, by the ending of its file."""
    turn = turn_of(lane.read({"model": "tiny", **BODIES.get(lane.name, lane.example)}))
    encoder, answer = lane.encoder(turn), Answer()
    files = {"sse": "".join([encoder.frames(row) for row in rows])}
    for row in rows:
        answer.add(row)
    if lane.whole is not stream_only and answer.failure is None:
        files["json"] = json.dumps(lane.whole(answer, turn), indent=1) + "\n"
    return files


def paths_and_texts(lane: Lane) -> dict[Path, str]:
    return {
        FOLDER / lane.name / f"{story}.{ending}": text
        for story, rows in STORIES.items()
        for ending, text in recorded(lane, rows).items()
    }


def main() -> None:
    for path in FOLDER.glob("*/*"):
        path.unlink()
    for lane in LANES:
        (FOLDER / lane.name).mkdir(exist_ok=True)
        for path, text in paths_and_texts(lane).items():
            path.write_text(text)


if __name__ == "__main__":
    main()
