"""Chat Completions in tests: the chunks of a log, and the message that clients put together from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from app.core.events import (
    AgentEvent,
    ReasoningDelta,
    RoundStarted,
    TextDelta,
    ToolDelta,
    ToolFinished,
    ToolHanded,
    ToolProgress,
    ToolStarted,
)
from app.storage.runs import EventRow
from routes.lanes.answer import Answer
from routes.lanes.lane import LaneRequest, Turn
from routes.lanes.openai_chat.stream import ChatEncoder
from routes.lanes.openai_chat.whole import whole_chat
from tests.support.lanes.logs import RUN, STARTED, finished

ROUND = RoundStarted(1)
NEXT = RoundStarted(2)
FINISHED = finished()
CLIENT_TOOLS = finished("client_tools")
CALL = ToolHanded("c1", "get_weather", {"city": 'Bob\'s "Bay"\u2028\\', "days": 3}, "hermes")
OTHER = ToolHanded("c2", "look", {}, "native")
OWN: list[AgentEvent] = [
    ToolDelta("c0", '{"command": "ls"}', "bash"),
    ToolStarted("c0", "bash", {"command": "ls"}, "native"),
    ToolProgress("c0", 1.0, ["a"], 1, 2),
    ToolFinished("c0", "bash", ok=True, text="a", duration_s=1.0),
]
Chunk = dict[str, Any]
CREATED, MODEL = 1_700_000_000, "alias/m"


def turn(**echo: bool) -> Turn:
    return Turn(RUN, STARTED.session, CREATED, MODEL, LaneRequest(model=MODEL, messages=[], echo=echo))


def by_character(rows: Iterable[EventRow]) -> list[EventRow]:
    """The same log, each delta of text a character."""
    events = list[tuple[str, str]]()
    for row in rows:
        fields = json.loads(row.data)
        if row.type in (TextDelta.type, ReasoningDelta.type):
            events += [(row.type, json.dumps(fields | {"text": one})) for one in fields["text"]]
        else:
            events.append((row.type, row.data))
    return [EventRow(RUN, seq, kind, data) for seq, (kind, data) in enumerate(events, 1)]


def stream(rows: Iterable[EventRow], **echo: bool) -> str:
    encoder = ChatEncoder(turn(**echo))
    return "".join(encoder.frames(row) for row in rows)


def blocks(frames: str) -> list[str]:
    """The data of each block; the rules of SSE hold."""
    assert frames.isascii() and "\r" not in frames
    *found, rest = frames.split("\n\n")
    assert rest == ""
    assert all(block.startswith("data: ") and "\n" not in block for block in found), "no id, event, retry; LF LF behind"
    return [block.removeprefix("data: ") for block in found]


def chunks(rows: Iterable[EventRow], **echo: bool) -> list[Chunk]:
    *found, done = blocks(stream(rows, **echo))
    assert done == "[DONE]"
    return [json.loads(one) for one in found]


def deltas(found: Iterable[Chunk]) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in found if chunk["choices"]]


def message_of(found: Sequence[Chunk]) -> dict[str, Any]:
    """The message that the official helpers put together: texts joined, fragments of calls by their index."""
    message: dict[str, Any] = {"calls": {}}
    for delta in deltas(found):
        for key in ("role", "content", "reasoning_content", "reasoning"):
            message[key] = message.get(key, "") + (delta.get(key) or "")
        for fragment in delta.get("tool_calls", ()):
            call = message["calls"].setdefault(fragment["index"], {"id": "", "type": "", "name": "", "arguments": ""})
            call["id"] += fragment.get("id", "")
            call["type"] += fragment.get("type", "")
            call["name"] += fragment["function"].get("name", "")
            call["arguments"] += fragment["function"]["arguments"]
    return message


def whole(rows: Iterable[EventRow], **echo: bool) -> dict[str, Any]:
    answer = Answer()
    for row in rows:
        answer.add(row)
    return whole_chat(answer, turn(**echo))
