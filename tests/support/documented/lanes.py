"""The lanes as docs/clients.md has them: a request for curl, and the stream that answers it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from app.core.events import RoundStarted, TextDelta, ToolHanded, Usage
from routes.lanes.catalogue import LANES
from routes.lanes.lane import Lane, Turn
from tests.support.lanes.logs import STARTED, finished, rows_of

BEGINNING, END = 60, 56  # characters of a long line, with dots between
RUN = "run_1a2b3c"
ASKED = "Is it warm in Rome?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "weather", "description": "The weather.", "parameters": SCHEMA}
USER = {"role": "user", "content": ASKED}
TITLES = {
    "chat": "OpenAI Chat Completions",
    "responses": "OpenAI Responses",
    "messages": "Anthropic Messages",
    "ag_ui": "AG-UI",
    "ui_message_stream": "UI message stream of the AI SDK",
}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {
        "model": "qwen3",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [USER],
        "tools": [{"type": "function", "function": WEATHER}],
    },
    "responses": {"model": "qwen3", "stream": True, "input": ASKED, "tools": [{"type": "function", **WEATHER}]},
    "messages": {
        "model": "qwen3",
        "stream": True,
        "max_tokens": 1000,
        "messages": [USER],
        "tools": [{"name": "weather", "description": "The weather.", "input_schema": SCHEMA}],
    },
    "ag_ui": {
        "threadId": "t1",
        "runId": "r1",
        "messages": [{"id": "m1", **USER}],
        "tools": [WEATHER],
        "forwardedProps": {"model": "qwen3"},
    },
    "ui_message_stream": {
        "model": "qwen3",
        "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": ASKED}]}],
        "tools": {"weather": {"description": "The weather.", "inputSchema": SCHEMA}},
    },
}
LOG = rows_of(
    STARTED,
    RoundStarted(1),
    TextDelta("I look"),
    TextDelta(" it up."),
    ToolHanded("c5d6e7f80", "weather", {"city": "Rome"}, "json_sentinel"),
    Usage(120, 24, 120, 24, measured=True),
    finished("client_tools"),
)


def body_of(lane: Lane) -> Mapping[str, Any]:
    """A request with a tool; of a lane that is not here, the example of its row."""
    return BODIES.get(lane.name, lane.example)


def lane_examples() -> Iterator[str]:
    """A section for each lane."""
    order = list(TITLES)
    for lane in sorted(LANES, key=lambda lane: order.index(lane.name) if lane.name in TITLES else len(TITLES)):
        yield from (f"### {TITLES.get(lane.name, lane.name)}", "", "```console")
        yield from _request(lane)
        yield from _stream(lane)
        yield from ("```", "")


def _request(lane: Lane) -> Iterator[str]:
    yield f"$ curl -N localhost:8724{lane.path} -H 'content-type: application/json' -d '{{"
    fields = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in body_of(lane).items()]
    yield from ",\n".join(fields).splitlines()
    yield "}'"


def _stream(lane: Lane) -> Iterator[str]:
    request = lane.read(body_of(lane))
    encoder = lane.encoder(Turn(RUN, STARTED.session, 1_700_000_000, "qwen3", request))
    for line in "".join(map(encoder.frames, LOG)).rstrip("\n").splitlines():
        yield line if len(line) <= BEGINNING + END else f"{line[:BEGINNING]} ... {line[-END:]}"
