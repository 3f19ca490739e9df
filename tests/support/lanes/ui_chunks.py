"""The chunks of the AI SDK's UI message stream, and their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
