"""Clients of the relay in all formats: requests with a tool of their own, the calls of answers, and their results."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MODEL, TOOL = "m", "bash"
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}


@dataclass(frozen=True, slots=True)
class Made:
    """A call as a client sees it."""

    id: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LaneClient:
    """`asking` is the body of a first request; `calls` reads an answer, which `read` has decoded; `answering` adds it
    and the results of its calls to a body."""

    asking: Callable[[str], dict[str, Any]]
    calls: Callable[[Any], list[Made]]
    answering: Callable[[dict[str, Any], Any], dict[str, Any]]
    read: Callable[[str], Any] = json.loads


def chat_asking(text: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": TOOL, "parameters": SCHEMA}}]
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "tools": tools}


def chat_calls(answer: dict[str, Any]) -> list[Made]:
    calls = answer["choices"][0]["message"].get("tool_calls", ())
    return [Made(call["id"], json.loads(call["function"]["arguments"])) for call in calls]


def chat_answering(body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    results = [{"role": "tool", "tool_call_id": made.id, "content": "done"} for made in chat_calls(answer)]
    return body | {"messages": [*body["messages"], answer["choices"][0]["message"], *results]}


def responses_asking(text: str) -> dict[str, Any]:
    tools = [{"type": "function", "name": TOOL, "parameters": SCHEMA}]
    return {"model": MODEL, "input": [{"role": "user", "content": text}], "tools": tools, "store": False}


def responses_calls(answer: dict[str, Any]) -> list[Made]:
    calls = [item for item in answer["output"] if item["type"] == "function_call"]
    return [Made(call["call_id"], json.loads(call["arguments"])) for call in calls]


def responses_answering(body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    results = [
        {"type": "function_call_output", "call_id": made.id, "output": "done"} for made in responses_calls(answer)
    ]
    return body | {"input": [*body["input"], *answer["output"], *results]}


def messages_asking(text: str) -> dict[str, Any]:
    tools = [{"name": TOOL, "input_schema": SCHEMA}]
    return {"model": MODEL, "max_tokens": 512, "messages": [{"role": "user", "content": text}], "tools": tools}


def messages_calls(answer: dict[str, Any]) -> list[Made]:
    return [Made(block["id"], block["input"]) for block in answer["content"] if block["type"] == "tool_use"]


def messages_answering(body: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    results = [{"type": "tool_result", "tool_use_id": made.id, "content": "done"} for made in messages_calls(answer)]
    more = [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": results}]
    return body | {"messages": [*body["messages"], *more]}


def events_in(text: str) -> list[dict[str, Any]]:
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return [json.loads(one) for one in data]


def ag_ui_asking(text: str) -> dict[str, Any]:
    messages = [{"id": "1", "role": "user", "content": text}]
    tools = [{"name": TOOL, "description": "", "parameters": SCHEMA}]
    named = {"threadId": "t", "runId": "r", "state": {}, "context": [], "forwardedProps": {"model": MODEL}}
    return named | {"messages": messages, "tools": tools}


def ag_ui_calls(events: list[dict[str, Any]]) -> list[Made]:
    made = dict[str, str]()
    for event in events:
        if event["type"] in ("TOOL_CALL_START", "TOOL_CALL_ARGS"):
            made[event["toolCallId"]] = made.get(event["toolCallId"], "") + event.get("delta", "")
    answered = {event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"}  # by the server
    return [Made(id, json.loads(written)) for id, written in made.items() if id not in answered]


def ag_ui_answering(body: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    made = ag_ui_calls(events)
    calls = [
        {"id": one.id, "type": "function", "function": {"name": TOOL, "arguments": json.dumps(one.arguments)}}
        for one in made
    ]
    results = [{"id": f"r{one.id}", "role": "tool", "toolCallId": one.id, "content": "done"} for one in made]
    answer = {"id": f"a{len(body['messages'])}", "role": "assistant", "content": "", "toolCalls": calls}
    return body | {"messages": [*body["messages"], answer, *results]}


def ui_asking(text: str) -> dict[str, Any]:
    messages = [{"id": "1", "role": "user", "parts": [{"type": "text", "text": text}]}]
    return {"id": "chat", "model": MODEL, "messages": messages, "tools": {TOOL: {"inputSchema": SCHEMA}}}


def ui_calls(events: list[dict[str, Any]]) -> list[Made]:
    return [Made(event["toolCallId"], event["input"]) for event in events if event["type"] == "tool-input-available"]


def ui_answering(body: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    state = {"type": f"tool-{TOOL}", "state": "output-available", "output": "done"}
    parts = [state | {"toolCallId": made.id, "input": made.arguments} for made in ui_calls(events)]
    answer = {"id": f"a{len(body['messages'])}", "role": "assistant", "parts": [{"type": "step-start"}, *parts]}
    return body | {"messages": [*body["messages"], answer]}


LANES = {
    "/v1/chat/completions": LaneClient(chat_asking, chat_calls, chat_answering),
    "/v1/responses": LaneClient(responses_asking, responses_calls, responses_answering),
    "/v1/messages": LaneClient(messages_asking, messages_calls, messages_answering),
    "/ag-ui": LaneClient(ag_ui_asking, ag_ui_calls, ag_ui_answering, events_in),
    "/ui-message-stream": LaneClient(ui_asking, ui_calls, ui_answering, events_in),
}
