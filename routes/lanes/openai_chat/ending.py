"""The parts of an answer that streams and whole answers share: its id, its finish reason, its usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from routes.lanes.lane import Turn

STOP, LENGTH, CALLS, LEGACY_CALL, FILTERED = "stop", "length", "tool_calls", "function_call", "content_filter"
# Reasons of `run.finished` after which the answer is whole. Clients know no word for any other than a limit.
WHOLE = frozenset({"answered", "client_tools", "loop_broken"})


def completion_id(turn: Turn) -> str:
    return f"chatcmpl-{turn.run.removeprefix('run_')}"


def finish_reason(reason: str, *, calls: int, cut: bool, declined: bool, legacy: bool = False) -> str:
    """`tool_calls` exactly if there are calls; never a word of ours, which would end the loops of clients."""
    if calls:
        return LEGACY_CALL if legacy else CALLS
    if declined:
        return FILTERED
    return LENGTH if cut or reason not in WHOLE else STOP


def usage_body(usage: Mapping[str, Any], cached: int) -> dict[str, Any]:
    """The totals of the fields of `usage`, which are empty for a run that has asked no model."""
    prompt, completion = usage.get("total_prompt_tokens", 0), usage.get("total_completion_tokens", 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
