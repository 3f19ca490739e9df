"""Requests of Responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from app.core.messages import Message
from app.storage.people.members import checked_outside
from routes.lanes.lane import LaneRequest
from routes.lanes.reading import Node
from routes.lanes.responses.compaction import with_question
from routes.lanes.responses.history import History, unknown_types
from routes.lanes.responses.ids import approval_id, response_place
from routes.lanes.responses.input_items import items_of, kept_items
from routes.lanes.responses.tools import DeclaredTools, chosen
from routes.protocol.errors import Refused

# Fields that are read here, or that concern nothing but the client's account and its own bookkeeping.
READ = frozenset({
    "model", "input", "instructions", "tools", "tool_choice", "stream", "stream_options", "store", "background",
    "include", "previous_response_id", "conversation", "text", "reasoning", "max_output_tokens", "max_tool_calls",
    "metadata", "client_metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user",
    "service_tier", "truncation", "top_logprobs", "prompt", "context_management",
})  # fmt: skip
# What a response repeats of its request, and what stands there if the request has nothing.
ECHOED: Mapping[str, Any] = {
    "background": False, "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "metadata": {},
    "parallel_tool_calls": True, "previous_response_id": None, "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None}, "safety_identifier": None, "service_tier": "default",
    "store": True, "temperature": None, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [],
    "top_p": None, "truncation": "disabled", "user": None,
}  # fmt: skip
SEALED = "reasoning.encrypted_content"


def read_responses(body: Mapping[str, Any]) -> LaneRequest:
    """Raises Refused."""
    node = Node(body)
    for item in items_of(node, "configuration_update"):
        changed = {name: item.fields[name] for name in ("reasoning", "text") if item.fields.get(name)}
        node = Node({**node.fields, **changed})
    if node.fields.get("prompt") is not None:
        raise node.refused("prompt", "is not supported: this server keeps no templates; send instructions and input")
    declared, history = DeclaredTools.of(node), History.of(node)
    previous = _previous(node) or (history.approvals[-1].run if history.approvals else None)
    if not (history.messages or history.verdicts or previous):
        if unknown := unknown_types(node):
            raise node.refused("input", f"has only items of types unknown here ({', '.join(unknown)}); send a message")
        raise node.refused("input", "is missing; send a text or a list of items")
    store, background = node.flag("store", default=True), node.flag("background")
    if background and not store:
        raise node.refused("store", "is false, but a background response is read later; leave it out")
    return LaneRequest(
        model=node.text("model"),
        messages=[*_instructions(node), *history.messages],
        files=history.files,
        tools=declared.tools,
        parameters=_parameters(node),
        stream=node.flag("stream"),
        previous=previous,
        conversation=_conversation(node),
        verdicts=history.verdicts,
        asks=declared.asks or bool(history.verdicts),
        store=store,
        background=background,
        compact=with_question if history.compacts else None,
        echo=_echo(node, declared, history),
    )


def read_compact(body: Mapping[str, Any]) -> LaneRequest:
    """A request for a compaction, whose answer is not kept. Raises Refused."""
    unkept = {**body, "store": False, "stream": False, "background": False}
    return replace(read_responses(unkept), compact=with_question)


def _instructions(node: Node) -> list[Message]:
    given = node.text("instructions")
    return [Message("system", given)] if given else []


def _previous(node: Node) -> str | None:
    """The run of `previous_response_id`. Raises Refused."""
    given = node.text("previous_response_id")
    if not given:
        return None
    if place := response_place(given):
        return place.run
    message = f"There is no response {given[:80]!a} here. Send the whole conversation as input instead."
    raise Refused(400, "previous_response_not_found", message, param="previous_response_id")


def _conversation(node: Node) -> str | None:
    """The key of the conversation. `prompt_cache_key` is none: programs use one for all conversations."""
    is_object = isinstance(node.fields.get("conversation"), dict)
    given = node.required_child("conversation").required_text("id") if is_object else node.text("conversation")
    try:
        return given and checked_outside(given)
    except ValueError as wrong:
        raise node.refused("conversation", str(wrong)) from None


def _parameters(node: Node) -> dict[str, Any]:
    """Those of chat completions, known or not; null counts as left out."""
    text, reasoning = node.child("text"), node.child("reasoning")
    translated = {
        "max_tokens": node.integer("max_output_tokens"),
        "tool_choice": chosen(node.fields.get("tool_choice")),
        "response_format": _response_format(text) if text else None,
        "verbosity": text.text("verbosity") if text else None,
        "reasoning_effort": reasoning.text("effort") if reasoning else None,
    }
    others = {name: value for name, value in node.fields.items() if name not in READ}
    return {name: value for name, value in (others | translated).items() if value is not None}


def _response_format(text: Node) -> dict[str, Any] | None:
    wanted = text.child("format")
    if wanted is None or wanted.fields.get("type") in ("text", None):
        return None
    if wanted.fields["type"] != "json_schema":
        return dict(wanted.fields)
    if wanted.child("schema") is None:
        raise wanted.refused("schema", "is missing; send a JSON Schema")
    return {
        "type": "json_schema",
        "json_schema": {name: value for name, value in wanted.fields.items() if name != "type" and value is not None},
    }


def _echo(node: Node, declared: DeclaredTools, history: History) -> dict[str, Any]:
    given = {name: node.fields[name] for name in ECHOED if node.fields.get(name) is not None}
    echo: dict[str, Any] = {"response": dict(ECHOED) | given, "names": declared.names()}
    if SEALED in node.values("include"):
        echo["seal"] = True
    if history.approvals:
        echo["approvals"] = {one.call: approval_id(one.run, one.seq, one.call) for one in history.approvals}
    if node.flag("store", default=True):
        echo["input"] = kept_items(node.fields.get("input"))
    return echo
