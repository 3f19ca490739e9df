"""update_plan: keeps the list of steps of a longer task, each pending, active or done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from parsing import Arguments
from tools.base.escape_invisible import visible
from tools.base.outcome import ToolFailed
from tools.tool import Context

NAME = "update_plan"
KEPT = "The plan is kept"  # the result of a plan that counts has it
MAX_STEPS, MAX_STEP = 40, 300  # steps, and characters of one
PENDING, ACTIVE, DONE = STATES = ("pending", "active", "done")
# The words of other agents, whose plans models were trained on.
ALIASES = {
    "todo": PENDING,
    "not_started": PENDING,
    "open": PENDING,
    "in_progress": ACTIVE,
    "doing": ACTIVE,
    "current": ACTIVE,
    "completed": DONE,
    "complete": DONE,
    "finished": DONE,
}
TEXT_NAMES = ("step", "content", "text", "title", "description", "task")
STATE_NAMES = ("state", "status")


class Step(Struct, frozen=True):
    """A step of a plan. `state`: one of STATES."""

    step: str
    state: str = PENDING


async def update_plan(arguments: Arguments, context: Context) -> str:
    """Show the plan to the person. Raises ToolFailed if it cannot be kept."""
    steps = plan_of(arguments)
    context.show_plan(steps)
    done = sum(step.state == DONE for step in steps)
    return f"{KEPT}: {done} of {len(steps)} steps done."


def plan_of(arguments: Arguments) -> list[Step]:
    """Return the steps, with invisible characters made visible. Raises ToolFailed."""
    steps = [Step(visible(str(one["step"])).strip(), str(one["state"])) for one in arguments["steps"]]
    if not steps:
        raise ToolFailed("steps is empty.", " Give all steps of the plan, those that are done included.")
    if len(steps) > MAX_STEPS:
        raise ToolFailed(f"The plan has {len(steps)} steps", f": keep it to {MAX_STEPS}, with larger steps.")
    for number, step in enumerate(steps, start=1):
        if not step.step:
            raise ToolFailed(f"Step {number} is empty.", " Write a few words for each step.")
        if len(step.step) > MAX_STEP:
            raise ToolFailed(f"Step {number} is too long", f": write at most {MAX_STEP} characters.")
    return steps


def with_plain_steps(arguments: Arguments) -> Arguments:
    """Rewrite steps that are written in other usual ways. Total and idempotent; the schema refuses what is left."""
    steps = arguments.get("steps")
    if not isinstance(steps, list):
        return arguments
    return arguments | {"steps": [_plain_step(step) for step in steps]}


def _plain_step(step: object) -> object:
    if isinstance(step, str):
        return {"step": step, "state": PENDING}
    if not isinstance(step, dict):
        return step
    text, state = _first(step, TEXT_NAMES), _first(step, STATE_NAMES)
    word = state.strip().casefold().replace("-", "_").replace(" ", "_") if isinstance(state, str) else PENDING
    return {"step": text, "state": ALIASES.get(word, word)} if isinstance(text, str) else step


def _first(step: dict[str, Any], names: Sequence[str]) -> object:
    return next((step[name] for name in names if name in step), None)


def plan_text(steps: Sequence[Step]) -> str:
    """Return the plan as text, a line per step."""
    return "\n".join(f"{number}. [{step.state}] {step.step}" for number, step in enumerate(steps, start=1))
