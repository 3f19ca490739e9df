"""Streams of Responses for their tests: of golden logs, and of events made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.core.events import (
    AgentEvent,
    ReasoningDelta,
    RoundStarted,
    RunFailed,
    TextDelta,
    ToolFinished,
    ToolHanded,
    ToolRejected,
    ToolStarted,
)
from app.storage.runs import EventRow
from routes.lanes.lane import LaneRequest
from routes.lanes.responses.encoder import ResponseEncoder
from tests.support.lanes.logs import LOGS, STARTED, USAGE, blocks, finished, golden_rows, rows_of, turn_of

Events = list[tuple[str, dict[str, Any]]]
ECHO: dict[str, dict[str, Any]] = {
    "response": {
        "tools": [{"type": "function", "name": "get_weather"}], "tool_choice": "auto", "parallel_tool_calls": True,
    },
    "names": {
        "custom": ["apply_patch"],
        "namespaces": {"files__read": ["files", "read"]},
        "all": ["apply_patch", "get_weather", "files__read"],
    },
}  # fmt: skip


def request(**fields: Any) -> LaneRequest:
    return LaneRequest(model="tiny", messages=[], echo=ECHO, **fields)


def stream(rows: Sequence[EventRow], asked: LaneRequest | None = None, cursor: int = -1) -> str:
    encoder = ResponseEncoder(turn_of(asked or request()), cursor)
    return "".join(encoder.frames(row) for row in rows)


def of(*events: AgentEvent, asked: LaneRequest | None = None) -> Events:
    return blocks(stream(rows_of(STARTED, RoundStarted(1), *events), asked))


def only(events: Events, kind: str) -> list[dict[str, Any]]:
    return [data for name, data in events if name == f"response.{kind}"]


MADE: Mapping[str, Sequence[AgentEvent]] = {
    "a call handed over": (
        *(ReasoningDelta("I need"), ReasoningDelta(" it."), TextDelta("\n")),
        ToolHanded("c1", "get_weather", {"city": "K\u00f6ln"}, "hermes"),
        *(USAGE, finished("client_tools")),
    ),
    "two calls in one reply, and text": (
        *(TextDelta("Both. "), ToolHanded("c1", "get_weather", {}, "native"), TextDelta("\n\n")),
        *(ToolHanded("c2", "apply_patch", {"input": "*** Begin\n"}, "native"), USAGE, finished("client_tools")),
    ),
    "own calls beside the client's": (
        *(TextDelta("Look."), ToolStarted("c1", "bash", {"command": "ls"}, "native")),
        *(ToolStarted("c2", "grep", {}, "native"), ToolFinished("c2", "grep", True, "a", 0.1)),
        *(ToolFinished("c1", "bash", False, "broken", 0.1), ToolHanded("c3", "files__read", {}, "native")),
        *(USAGE, finished("client_tools")),
    ),
    "cancelled within a call": (ToolStarted("c1", "bash", {"command": "ls"}, "native"), USAGE, finished("cancelled")),
    "a failure": (TextDelta("Half of "), RunFailed("model_cut", "It broke off.", True)),
    "only white space": (TextDelta(" "), TextDelta("\n"), ReasoningDelta("\n"), USAGE, finished()),
    "white space first": (TextDelta("  "), TextDelta("\n "), TextDelta("text"), TextDelta(" "), USAGE, finished()),
    "halves of a character": (TextDelta("a\ud83d"), TextDelta("\udc26b"), USAGE, finished()),
    "rejected": (
        *(ToolRejected("Not this.", "c1", "bash"), ToolRejected("The client's.", "c2", "get_weather")),
        *(ToolRejected("No name.", "c3"), ToolRejected("No call."), USAGE, finished()),
    ),
}
ROWS = {name: golden_rows(name) for name in LOGS} | {
    name: rows_of(STARTED, RoundStarted(1), *events) for name, events in MADE.items()
}
