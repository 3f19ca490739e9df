"""Blocks and fields that streamed and whole answers have in common."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from app.core.messages import Message
from app.models.tokens.estimates import estimated
from app.models.wire.call_ids import plain_for_client
from routes.lanes.answer import HandedCall, OwnCall
from routes.lanes.lane import LaneRequest, Turn

Block = dict[str, Any]

DRAGOMAN = "dragoman"  # the name of the server whose tools the agent's own tools are
SIGNED = f"{DRAGOMAN}:"
STOP_REASONS = {"answered": "end_turn", "cancelled": "end_turn", "client_tools": "tool_use"}
LIMITED = "max_tokens"  # of all other reasons: a limit of some kind has ended the run


def message_id(turn: Turn) -> str:
    return f"msg_{turn.run.removeprefix('run_')}"


def signature_of(turn: Turn) -> str:
    """The signature of a thought. Clients require one; it says that the thought came from this server."""
    return b64encode(f"{SIGNED}{turn.run}".encode()).decode()


def is_our_signature(signature: str) -> bool:
    try:
        return b64decode(signature, validate=True).startswith(SIGNED.encode())
    except ValueError:
        return False


def stop_reason(reason: str, *, cut: bool, declined: bool) -> str:
    """The `stop_reason` of a run that ended for `reason`."""
    if reason == "answered" and (cut or declined):
        return "refusal" if declined else LIMITED
    return STOP_REASONS.get(reason, LIMITED)


def usage_of(usage: Mapping[str, Any], cached: int) -> dict[str, int]:
    """Totals of a run. In this format the tokens of a prompt that were read from a cache are counted apart."""
    prompt, completion = usage.get("total_prompt_tokens", 0), usage.get("total_completion_tokens", 0)
    return {
        "input_tokens": max(0, prompt - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": min(cached, prompt),
        "output_tokens": completion,
    }


def estimated_usage(request: LaneRequest) -> dict[str, int]:
    """The usage as far as it can be known before the model's server has counted."""
    tokens = sum(map(_estimated_message, request.messages))
    tokens += sum(estimated(json.dumps(tool.parameters)) + estimated(tool.description) for tool in request.tools)
    return usage_of({"total_prompt_tokens": round(tokens)}, 0)


def _estimated_message(message: Message) -> float:
    calls = sum(estimated(json.dumps(call.arguments)) for call in message.calls)
    return estimated(message.text) + calls


def tool_use(call: HandedCall) -> Block:
    return {"type": "tool_use", "id": plain_for_client(call.call), "name": call.name, "input": call.arguments}


def own_tool_use(call: OwnCall) -> Block:
    named = {"type": "mcp_tool_use", "id": call.call, "name": call.name, "server_name": DRAGOMAN}
    return named | {"input": call.arguments}


def own_tool_result(call: str, text: str, *, ok: bool) -> Block:
    content = [{"type": "text", "text": text}]
    return {"type": "mcp_tool_result", "tool_use_id": call, "is_error": not ok, "content": content}
