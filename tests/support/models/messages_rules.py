"""The rules of the Messages API for a request, as its documentation and its refusals tell them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
ID = re.compile(r"[a-zA-Z0-9_-]+")
MEDIA = {"image": ("image/png", "image/jpeg", "image/gif", "image/webp"), "document": ("application/pdf",)}
SAYS = {
    "user": ("text", "image", "document", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
}
THOUGHTS = ("thinking", "redacted_thinking")
KNOWN = {
    *("model", "max_tokens", "system", "tools", "messages", "stream", "temperature", "top_p", "top_k"),
    *("stop_sequences", "tool_choice", "thinking", "output_config"),
}


def broken_rules(body: dict[str, Any]) -> list[str]:
    """What the server would refuse the request for."""
    json.dumps(body, ensure_ascii=False, allow_nan=False).encode()  # no lone surrogates, no numbers that JSON lacks
    messages = body["messages"]
    return [
        *(f"{name} is not known" for name in body.keys() - KNOWN),
        *of_fields(body),
        *of_roles([message["role"] for message in messages]),
        *(wrong for message in messages for wrong in of_message(message)),
        *of_calls(messages, bool(body.get("tools"))),
        *of_tools(body.get("tools", [])),
        *of_marks([*body.get("tools", []), *body.get("system", []), *blocks_of(messages)]),
    ]


def blocks_of(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for message in messages:
        yield from message["content"]


def of_fields(body: dict[str, Any]) -> Iterator[str]:
    if not (isinstance(body["max_tokens"], int) and body["max_tokens"] >= 1):
        yield "max_tokens must be a number"
    if not 0 <= body.get("temperature", 0) <= 1:
        yield "temperature must be between 0 and 1"
    for name in ("system", "tools"):
        if name in body and not body[name]:
            yield f"{name} is empty"
    for block in body.get("system", []):
        if block["type"] != "text" or not block["text"].strip():
            yield "system: text content blocks must contain non-whitespace text"


def of_roles(roles: list[str]) -> Iterator[str]:
    if not roles or roles[0] != "user":
        yield "the first message must use the user role"
    if roles and roles[-1] != "user":
        yield "the conversation must end with a user message"
    yield from ("roles must alternate" for one, other in pairwise(roles) if one == other)


def of_message(message: dict[str, Any]) -> Iterator[str]:
    content = message["content"]
    if not content:
        yield "all messages must have non-empty content"
    for block in content:
        if block["type"] not in SAYS[message["role"]]:
            yield f"{message['role']} may not say {block['type']}"
        if block["type"] == "text" and not block["text"].strip():
            yield "text content blocks must contain non-whitespace text"
        if block["type"] in MEDIA and block["source"]["media_type"] not in MEDIA[block["type"]]:
            yield f"{block['source']['media_type']} is no {block['type']}"
    if message["role"] == "assistant" and content and content[-1]["type"] in THOUGHTS:
        yield "the final block in an assistant message cannot be thinking"


def of_calls(messages: list[dict[str, Any]], offered: bool) -> Iterator[str]:
    """Each call is answered at once, in order, before anything else is said."""
    asked: list[str] = []
    every: list[str] = []
    for message in messages:
        found = [block.get("tool_use_id") for block in message["content"] if block["type"] == "tool_result"]
        first = [block["type"] for block in message["content"][: len(found)]]
        if message["role"] == "user" and (found != asked or set(first) - {"tool_result"}):
            yield f"tool_use ids were found without tool_result blocks immediately after: {asked}, {found}"
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        yield from (f"odd call {call}" for call in calls if not is_call(call))
        asked = [call["id"] for call in calls]
        every += asked
    if len(every) != len(set(every)):
        yield "tool_use ids must be unique"
    if every and not offered:
        yield "tool_use blocks need tools"


def is_call(call: dict[str, Any]) -> bool:
    return bool(ID.fullmatch(call["id"]) and NAME.fullmatch(call["name"]) and isinstance(call["input"], dict))


def of_tools(tools: list[dict[str, Any]]) -> Iterator[str]:
    names = [tool["name"] for tool in tools]
    if len(names) != len(set(names)):
        yield "tool names must be unique"
    for tool in tools:
        schema = tool["input_schema"]
        if (
            not NAME.fullmatch(tool["name"])
            or schema.get("type") != "object"
            or {"oneOf", "anyOf", "allOf"} & set(schema)
        ):
            yield f"odd tool {tool}"


def of_marks(blocks: list[dict[str, Any]]) -> Iterator[str]:
    marked = [block for block in blocks if "cache_control" in block]
    if len(marked) > 4:
        yield "a maximum of 4 blocks with cache_control may be provided"
    yield from ("cache_control cannot be set for thinking" for block in marked if block.get("type") in THOUGHTS)
