"""Streams of each lane: how a turn begins there, and what ends it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.support.fuzz.blocks import dumped
from tests.support.fuzz.site import Site, events, whole

JSON = {"content-type": "application/json"}
LOOK = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {"a": {}}}}


def native_ends(frames: str) -> int:
    kinds = [kind for kind, _ in events(frames)]
    ends = [number for number, kind in enumerate(kinds) if kind in ("run.finished", "run.failed")]
    return len(ends) if not ends or ends[-1] == len(kinds) - 1 else -1


def counted(mark: str) -> Callable[[str], int]:
    return lambda frames: len(re.findall(mark, frames))


def chat_ends(frames: str) -> int:
    """An error stands for the last line of the format."""
    return len(re.findall(r"(?m)^data: \[DONE\]$", frames)) or len(re.findall(r'(?m)^data: \{"error"', frames))


LaneBody = Callable[[str, str], dict[str, Any]]
LANES: dict[str, tuple[LaneBody, Callable[[str], int]]] = {
    "/chat": (
        lambda model, message: {"message": message, "model": model, "approval": "auto", "when_absent": "deny"},
        native_ends,
    ),
    "/v1/chat/completions": (
        lambda model, message: {"model": model, "messages": [{"role": "user", "content": message}], "stream": True,
                                "tools": [{"type": "function", "function": LOOK}]},
        chat_ends,
    ),
    "/v1/responses": (
        lambda model, message: {"model": model, "input": message, "stream": True,
                                "tools": [{"type": "function", **LOOK}]},
        counted(r"(?m)^event: (?:response\.(?:completed|failed|incomplete)|error)$"),
    ),
    "/v1/messages": (
        lambda model, message: {"model": model, "messages": [{"role": "user", "content": message}], "stream": True,
                                "max_tokens": 9_000, "tools": [{"name": "look", "input_schema": {"type": "object"}}]},
        counted(r"(?m)^event: (?:message_stop|error)$"),
    ),
    "/ag-ui": (
        lambda model, message: {"threadId": "", "runId": "", "state": {}, "tools": [], "context": [],
                                "forwardedProps": {"model": model},
                                "messages": [{"id": "m", "role": "user", "content": message}]},
        counted(r'"type": ?"RUN_(?:FINISHED|ERROR)"'),
    ),
    "/ui-message-stream": (
        lambda model, message: {"id": "", "model": model, "trigger": "submit-message",
                                "messages": [{"role": "user", "parts": [{"type": "text", "text": message}]}]},
        counted(r"(?m)^data: \[DONE\]$"),
    ),
}  # fmt: skip


async def streamed(site: Site, lane: str, body: dict[str, Any]) -> tuple[str, str]:
    """The stream of one turn, and what is wrong with it."""
    response = await site.client.post(lane, json=body)
    frames = response.text
    if response.status_code == 500 or '"internal"' in frames:
        return frames, f"{lane}: {response.status_code} {frames[-300:]}"
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        return frames, ""
    ends = LANES[lane][1](frames)
    return frames, "" if ends == 1 else f"{lane}: {ends} ends: {frames[-200:]!r}"


async def fine(site: Site, method: str, path: str, **request: Any) -> tuple[Any, str]:
    response = await site.client.request(method, path, **request)
    return response, f"{method} {path}: 500 {response.text[:200]}" if response.status_code == 500 else ""


def native(*calls: dict[str, Any]) -> bytes:
    """A model's answer that makes these calls."""
    made = [{"index": number, "id": f"c{number}", "function": call} for number, call in enumerate(calls)]
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": made}, "finish_reason": "tool_calls"}]}
    return whole("text/event-stream", b"data: %s\n\ndata: [DONE]\n\n" % dumped(chunk))
