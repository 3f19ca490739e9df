"""submit_plan: shows a plan to the person of a run that only plans; once it is accepted, the run acts."""

from __future__ import annotations

from typing import Any

from parsing import Arguments
from tools.base.outcome import required
from tools.builtin.plan import plan_of, with_plain_steps
from tools.tool import Context

NAME = "submit_plan"
ACCEPTED = "The plan is accepted: all tools are yours to use now. Carry it out, and keep update_plan up to date."


async def submit_plan(arguments: Arguments, context: Context) -> str:
    """Let the run act. The gate has asked the person about exactly these steps. Raises ToolFailed."""
    accept = required(context.accept_plan, "No plan can be accepted here. Answer with the plan.")
    steps = plan_of(with_plain_steps(arguments))
    context.show_plan(steps)
    accept()
    return ACCEPTED


def with_texts(arguments: Arguments) -> Arguments:
    """Rewrite steps that are written as objects to their texts. Total and idempotent."""
    steps = with_plain_steps(arguments).get("steps")
    if not isinstance(steps, list):
        return arguments
    return arguments | {"steps": list(map(_text_of, steps))}


def _text_of(step: Any) -> Any:
    text = step.get("step") if isinstance(step, dict) else None
    return text if isinstance(text, str) else step
