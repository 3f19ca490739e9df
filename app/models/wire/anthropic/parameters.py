"""Parameters of chat completions as fields of the Messages API; those without a counterpart are left out.

https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.models.wire.tool_choice import AUTO, NONE, REQUIRED, tool_choice

MODES = {AUTO: "auto", NONE: "none", REQUIRED: "any"}
EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})
LEAST_EFFORT = {"minimal": "low"}  # `none` needs no field: these models think only if a request has one
THINKING = ("thinking", "output_config")  # fields that models refuse which think in another way, or not at all


def message_fields(given: Mapping[str, Any], *, tools: bool) -> dict[str, Any]:
    """Return the fields, other than the limit and the temperature; `tools` if the request offers some.

    Newer models take a temperature or `top_p`, but not both.
    """
    fields = {
        "top_p": given.get("top_p") if given.get("temperature") is None else None,
        "top_k": given.get("top_k"),
        "stop_sequences": _stops(given.get("stop")),
        "tool_choice": _choice(given) if tools else None,
        **_thinking(given),
    }
    return {name: value for name, value in fields.items() if value is not None}


def with_thinking(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the agent's parameters with the model's own way to think, for a `reasoning_effort`."""
    effort = given.get("reasoning_effort")
    effort = LEAST_EFFORT.get(str(effort), effort)
    if effort not in EFFORTS:
        return dict(given)
    return {**given, "thinking": {"type": "adaptive"}, "reasoning_effort": effort}


def _stops(stop: Any) -> list[str] | None:
    """Return the sequences; white space alone is refused."""
    stops = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    return [one for one in stops if isinstance(one, str) and one.strip()] or None


def _choice(given: Mapping[str, Any]) -> dict[str, Any] | None:
    choice = tool_choice(given)
    one_call = given.get("parallel_tool_calls") is False
    if choice.mode == AUTO and not one_call:
        return None
    one_tool = choice.mode == REQUIRED and len(choice.names) == 1
    wanted = {"type": "tool", "name": choice.names[0]} if one_tool else {"type": MODES[choice.mode]}
    return wanted | ({"disable_parallel_tool_use": True} if one_call and choice.mode != NONE else {})


def _thinking(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields about reasoning, if the client has sent `thinking` itself: its forms differ between models."""
    thinking, config, effort = given.get("thinking"), given.get("output_config"), given.get("reasoning_effort")
    if not isinstance(thinking, dict):
        return {}
    if not isinstance(config, dict):
        config = {"effort": effort} if thinking.get("type") == "adaptive" and effort in EFFORTS else None
    return {"thinking": thinking, "output_config": config}
