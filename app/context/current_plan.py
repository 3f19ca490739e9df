"""The plan of a conversation: what the model has kept with `update_plan`, found again in its history.

The history is the only place where it is stored, so it is as durable as the messages and the same after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.messages import AskedCall, Message
from tools.base.outcome import ToolFailed
from tools.builtin.plan import DONE, KEPT, MAX_STEPS, NAME, STATES, plan_of, plan_text, with_plain_steps

REMINDER = "Your plan so far (update_plan changes it):\n"


def reminder(messages: Sequence[Message], kept: Sequence[Message]) -> str:
    """Return the plan for a model that does not receive it any more; empty if it does, or if all is done."""
    call = latest_call(messages)
    if call is None or any(call in message.calls for message in kept):
        return ""
    steps = plan_of(with_plain_steps(call.arguments))
    return "" if all(step.state == DONE for step in steps) else f"{REMINDER}{plan_text(steps)}"


def latest_call(messages: Sequence[Message]) -> AskedCall | None:
    """Return the last call that has kept a plan."""
    kept = set[str]()
    for message in reversed(messages):
        if message.role == "tool" and message.name == NAME and KEPT in message.text and message.call:
            kept.add(message.call)
        for call in reversed(message.calls if kept else ()):
            if call.id in kept and call.name == NAME and _is_whole(call):
                return call
    return None


def _is_whole(call: AskedCall) -> bool:
    """Return whether the arguments are those of a plan: those of imported messages are a client's."""
    given = call.arguments.get("steps")
    if not isinstance(given, list) or len(given) > MAX_STEPS:
        return False
    steps = with_plain_steps(call.arguments)["steps"]
    if not all(isinstance(step, dict) and step.get("step") and step.get("state") in STATES for step in steps):
        return False
    try:
        plan_of({"steps": steps})
    except ToolFailed:
        return False
    return True
