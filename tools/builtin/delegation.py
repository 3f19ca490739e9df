"""The tools delegate and ask_model: a helper that does a task, and a question to another model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from parsing import Arguments
from tools.base.outcome import Progress, Result, ToolFailed, required
from tools.base.rights import OutboundEffect
from tools.tool import Context

DELEGATE = "delegate"
LONGEST = 20_000  # characters of a task, or of a question
_OFF = "Helpers are switched off here. Do it yourself."


async def delegate(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
    """Show the helper's progress; the result is its answer, as data."""
    helpers, task = required(context.helpers, _OFF), _text(arguments["task"], "task")
    async with aclosing(helpers.delegate(task, arguments.get("tools"), arguments.get("model"))) as steps:
        async for step in steps:
            yield step


async def ask_model(arguments: Arguments, context: Context) -> str:
    """Return the model's answer, as data."""
    helpers, question = required(context.helpers, _OFF), _text(arguments["question"], "question")
    return await helpers.ask_model(question, arguments.get("model"))


def model_reached(arguments: Arguments, _: Path) -> OutboundEffect | None:
    """The server of the model that a call names gets the text, and whatever was put into it."""
    model = arguments.get("model")
    if not model:
        return None
    return OutboundEffect(f"The server of the model {str(model)[:200]!r} would get the text.", carries_text=True)


def _text(text: str, name: str) -> str:
    if not text.strip():
        raise ToolFailed(f"{name} is empty.", " Write all that is needed: nothing of this conversation is passed on.")
    if len(text) > LONGEST:
        raise ToolFailed(f"{name} is too long", f": write at most {LONGEST:,} characters, and name files for the rest.")
    return text
