"""The lanes as a client speaks them: how a run begins, what its frames mean, and how a client comes back to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, field

from app.core.events import TERMINAL

AGENT = "dragoman/agent"
JOINS = {"x-stainless-retry-count": "1"}  # as the SDKs send a request again that has had no answer


class Request(Struct, frozen=True):
    method: str
    path: str
    body: dict[str, Any] | None = None
    headers: dict[str, str] = {}


class Received(Struct):
    """What a client has of one run."""

    id: str  # of the client's: thread, chat, idempotency key
    message: str
    approval: str = ""
    run: str = ""
    last: int = 0  # the number of the last event, where the format has one
    doubled: int = 0  # events whose number has come before
    skipped: int = 0  # numbers that were left out
    end: str = ""  # `whole` or `error`, by the format's own word
    events: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)  # of the answer, as a page keeps them
    waits: list[str] = field(default_factory=list)  # calls that wait for approval

    @property
    def text(self) -> str:
        return "".join(one["content"] for one in self.messages if one["role"] == "assistant")

    def add(self, text: str, message: str = "") -> None:
        if not self.messages or self.messages[-1]["id"] != message:
            known = next((one for one in self.messages if one["id"] == message), None)
            if known is not None:
                known["content"] += text
                return
            self.messages.append({"id": message, "role": "assistant", "content": ""})
        self.messages[-1]["content"] += text

    def ends(self, word: str) -> None:
        """Note an end: the first word of it holds, since an error may have frames behind it."""
        self.end = self.end or word

    def number(self, number: int, *, each: bool) -> None:
        """Note the number of an event; `each`: none is left out."""
        self.doubled += number <= self.last
        self.skipped += max(number - self.last - 1, 0) if each else 0
        self.last = max(number, self.last)


@dataclass(frozen=True, slots=True)
class Lane:
    begin: Callable[[Received], Request]
    take: Callable[[Received, dict[str, Any]], None]
    again: Callable[[Received], Request | None]  # None if the format has no way back into a stream


def _begin_native(received: Received) -> Request:
    body = {"message": received.message} | ({"approval": received.approval} if received.approval else {})
    return Request("POST", "/chat", body, {"idempotency-key": received.id})


def _take_native(received: Received, event: dict[str, Any]) -> None:
    received.number(event["seq"], each=True)
    match event["type"]:
        case "text.delta":
            received.add(event["text"])
        case "approval.required":
            received.waits.append(event["call"])
        case kind if kind in TERMINAL:
            received.ends("whole" if event.get("reason") == "answered" else "error")


def _return_native(received: Received) -> Request | None:
    return (
        Request("GET", f"/runs/{received.run}/events", None, {"last-event-id": str(received.last)})
        if received.run
        else None
    )


def _begin_responses(received: Received) -> Request:
    body = {"model": AGENT, "stream": True, "background": True, "store": True, "input": received.message}
    return Request("POST", "/v1/responses", body, JOINS)


def _take_responses(received: Received, event: dict[str, Any]) -> None:
    received.number(event["sequence_number"] + 1, each=False)
    match event["type"]:
        case "response.created":
            received.run = event["response"]["id"]
        case "response.output_text.delta":
            received.add(event["delta"], event["item_id"])
        case "response.completed":
            received.ends("whole")
        case "response.failed" | "response.incomplete" | "error":
            received.ends("error")


def _return_responses(received: Received) -> Request | None:
    path = f"/v1/responses/{received.run}?stream=true&starting_after={received.last - 1}"
    return Request("GET", path) if received.run else None


def _begin_chat(received: Received) -> Request:
    messages = [{"role": "user", "content": received.message}]
    return Request("POST", "/v1/chat/completions", {"model": AGENT, "stream": True, "messages": messages}, JOINS)


def _take_chat(received: Received, event: dict[str, Any]) -> None:
    if "error" in event:
        received.ends("error")
    for choice in event.get("choices", ()):
        received.add(choice["delta"].get("content") or "")


def _begin_messages(received: Received) -> Request:
    messages = [{"role": "user", "content": received.message}]
    body = {"model": AGENT, "stream": True, "max_tokens": 10_000, "messages": messages}
    return Request("POST", "/v1/messages", body, JOINS | {"anthropic-version": "2023-06-01"})


def _take_messages(received: Received, event: dict[str, Any]) -> None:
    match event["type"]:
        case "content_block_delta":
            received.add(event["delta"].get("text", ""))
        case "message_stop":
            received.ends("whole")
        case "error":
            received.ends("error")


def _begin_ag_ui(received: Received) -> Request:
    first = {"id": "u1", "role": "user", "content": received.message}
    body = {
        "threadId": received.id,
        "runId": "r1",
        "messages": [first, *received.messages],
        "state": {},
        "context": [],
    }
    return Request("POST", "/ag-ui", body)


def _take_ag_ui(received: Received, event: dict[str, Any]) -> None:
    """Keep messages as the format's own client does."""
    match event["type"]:
        case "TEXT_MESSAGE_CONTENT":
            received.add(event["delta"], event["messageId"])
        case "TOOL_CALL_START":
            received.add("", event["parentMessageId"])
            parent = next(one for one in received.messages if one["id"] == event["parentMessageId"])
            function = {"name": event["toolCallName"], "arguments": ""}
            call = {"id": event["toolCallId"], "type": "function", "function": function}
            parent.setdefault("toolCalls", []).append(call)
        case "TOOL_CALL_ARGS":
            calls = [call for one in received.messages for call in one.get("toolCalls", ())]
            next(one for one in calls if one["id"] == event["toolCallId"])["function"]["arguments"] += event["delta"]
        case "TOOL_CALL_RESULT":
            result = {"id": event["messageId"], "role": "tool", "content": event["content"]}
            received.messages.append(result | {"toolCallId": event["toolCallId"]})
        case "RUN_FINISHED":
            received.ends("whole")
        case "RUN_ERROR":
            received.ends("error")


def _begin_ui(received: Received) -> Request:
    messages = [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": received.message}]}]
    body = {"id": received.id, "messages": messages, "trigger": "submit-message"}
    return Request("POST", "/ui-message-stream", body)


def _take_ui(received: Received, event: dict[str, Any]) -> None:
    match event["type"]:
        case "start":
            received.messages.clear()  # one that is returned to begins anew
            received.run = received.run or received.id
        case "text-delta":
            received.add(event["delta"])
        case "finish":
            received.ends("whole")
        case "error" | "abort":
            received.ends("error")


def _return_ui(received: Received) -> Request | None:
    return Request("GET", f"/ui-message-stream/{received.id}/stream") if received.run else None


def _none(received: Received) -> Request | None:
    return None


LANES = {
    "native": Lane(_begin_native, _take_native, _return_native),
    "responses": Lane(_begin_responses, _take_responses, _return_responses),
    "messages": Lane(_begin_messages, _take_messages, _none),
    "chat": Lane(_begin_chat, _take_chat, _none),
    "ag-ui": Lane(_begin_ag_ui, _take_ag_ui, _begin_ag_ui),
    "ui": Lane(_begin_ui, _take_ui, _return_ui),
}


def taken(lane: Lane, received: Received, data: str, number: str) -> None:
    """Take one frame."""
    received.events += 1
    if data == "[DONE]":  # the last frame of two formats, and the only end of one
        if lane is LANES["chat"]:
            received.ends("whole")
        return
    event = json.loads(data)
    if lane is LANES["native"]:
        event["seq"] = int(number)
    lane.take(received, event)
