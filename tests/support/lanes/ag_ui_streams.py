"""Streams of AG-UI, and the rules that its client checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.storage.runs import EventRow
from routes.lanes.ag_ui.stream import AGUIEncoder
from routes.lanes.lane import LaneRequest, Turn
from tests.support.lanes.logs import RUN, STARTED, data_of, streams_of

ENDS = ("RUN_FINISHED", "RUN_ERROR")
PAIRS = {
    "TEXT_MESSAGE": "messageId",
    "REASONING_MESSAGE": "messageId",
    "REASONING": "messageId",
    "TOOL_CALL": "toolCallId",
}


def turn_of(after: int = 0, run: str = "r1") -> Turn:
    request = LaneRequest(model=None, messages=[], stream=True, asks=True, echo={"threadId": "t1", "runId": run})
    return Turn(RUN, STARTED.session, 1_700_000_000, "dragoman/agent", request, after)


def check_ag_ui(events: Sequence[dict[str, Any]]) -> None:
    opened: set[tuple[str, str]] = set()
    assert events[0] == {"type": "RUN_STARTED", "threadId": "t1", "runId": events[0]["runId"]}
    for at, event in enumerate(events):
        assert without_null(event), event
        assert (event["type"] in ENDS) is (event is events[-1])
        assert (event["type"] == "RUN_STARTED") is (at == 0)
        assert event.get("delta") != ""
        for name, field in PAIRS.items():
            one = (name, event.get(field, ""))
            if event["type"] == f"{name}_START":
                assert one not in opened
                opened.add(one)
            elif event["type"] in (f"{name}_CONTENT", f"{name}_ARGS"):
                assert one in opened
            elif event["type"] == f"{name}_END":
                opened.remove(one)
    assert not opened


def without_null(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is not None and all(map(without_null, inner))


def ag_ui_streams(rows: Sequence[EventRow]) -> list[list[dict[str, Any]]]:
    return [data_of(frames) for frames in streams_of(AGUIEncoder, turn_of, rows)]
