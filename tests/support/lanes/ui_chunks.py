"""The chunks of the AI SDK's UI message stream, and their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.storage.runs import EventRow
from routes.lanes.lane import LaneRequest, Turn
from routes.lanes.ui_message_stream.stream import DONE, UIStreamEncoder
from tests.support.lanes.logs import RUN, STARTED, data_of, streams_of

# The chunks of `uiMessageChunkSchema` of ai 5 to 7 that are sent, with their fields; another type is an error.
OWN = {"dynamic": bool, "providerExecuted": bool}
CHUNKS: Mapping[str, tuple[Mapping[str, type], Mapping[str, type]]] = {
    "start": ({}, {"messageId": str}),
    "start-step": ({}, {}),
    "finish-step": ({}, {}),
    "text-start": ({"id": str}, {}),
    "text-delta": ({"id": str, "delta": str}, {}),
    "text-end": ({"id": str}, {}),
    "reasoning-start": ({"id": str}, {}),
    "reasoning-delta": ({"id": str, "delta": str}, {}),
    "reasoning-end": ({"id": str}, {}),
    "tool-input-start": ({"toolCallId": str, "toolName": str}, OWN),
    "tool-input-available": ({"toolCallId": str, "toolName": str, "input": dict}, OWN),
    "tool-input-error": ({"toolCallId": str, "toolName": str, "input": dict, "errorText": str}, OWN),
    "tool-output-available": ({"toolCallId": str, "output": str}, OWN | {"preliminary": bool}),
    "tool-output-error": ({"toolCallId": str, "errorText": str}, OWN),
    "tool-output-denied": ({"toolCallId": str}, {}),
    "tool-approval-request": ({"approvalId": str, "toolCallId": str}, {"reason": str}),
    "data-notice": ({"data": dict, "transient": bool}, {}),
    "data-message": ({"data": dict, "transient": bool}, {}),
    "error": ({"errorText": str}, {}),
    "abort": ({}, {}),
    "finish": ({"finishReason": str}, {"messageMetadata": dict}),
}
FINISH_REASONS = {"stop", "length", "content-filter", "tool-calls", "error", "other"}


def check_fields(chunk: dict[str, Any]) -> None:
    required, optional = CHUNKS[chunk["type"]]
    assert required.keys() <= chunk.keys() - {"type"} <= required.keys() | optional.keys()
    for name, kind in (*required.items(), *optional.items()):
        assert name not in chunk or type(chunk[name]) is kind, chunk


def turn_of(after: int = 0, message: str = "") -> Turn:
    echo = {"message": message} if message else {}
    request = LaneRequest(model=None, messages=[], stream=True, asks=True, echo=echo)
    return Turn(RUN, STARTED.session, 1_700_000_000, "dragoman/agent", request, after)


def chunks_of(frames: str) -> list[dict[str, Any]]:
    assert frames.endswith(DONE)
    return data_of(frames.removesuffix(DONE))


def ui_streams(rows: Sequence[EventRow]) -> list[list[dict[str, Any]]]:
    """The streams, checked as those of one message: a later one may go on with a call of an earlier one."""
    streams = [chunks_of(frames) for frames in streams_of(UIStreamEncoder, turn_of, rows)]
    calls: set[str] = set()
    for chunks in streams:
        check_rules(chunks, calls)
    return streams


def check_rules(chunks: Sequence[dict[str, Any]], calls: set[str]) -> None:
    opened: set[tuple[str, str]] = set()
    assert [at for at, one in enumerate(chunks) if one["type"] == "start"] == [0]
    assert [one for one in chunks if one["type"] == "finish"] == [chunks[-1]]
    assert chunks[-1]["finishReason"] in FINISH_REASONS
    for chunk in chunks:
        check_fields(chunk)
        kind, _, step = chunk["type"].partition("-")
        part = (kind, chunk.get("id", ""))
        if kind in ("text", "reasoning"):
            assert (part in opened) is (step != "start")
            assert chunk.get("delta") != ""
            opened ^= {part} if step != "delta" else set()
        elif chunk["type"] in ("tool-input-start", "tool-input-error"):
            calls.add(chunk["toolCallId"])
        elif kind == "tool":
            assert chunk["toolCallId"] in calls
    assert not opened
