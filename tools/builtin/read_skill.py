"""read_skill: the text of a skill that the prompt names."""

from __future__ import annotations

from parsing import Arguments
from tools.base.outcome import ToolFailed
from tools.tool import Context

MOST_NAMED = 32


async def read_skill(arguments: Arguments, context: Context) -> str:
    """Return the text. Raises ToolFailed for a name that is not in the prompt."""
    text = context.skills.get(arguments["name"])
    if text is None:
        names = ", ".join(list(context.skills)[:MOST_NAMED])
        raise ToolFailed(f"There is no such skill. There are: {names}." if names else "There are no skills.")
    return text
