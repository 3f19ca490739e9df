"""recall_history: searches earlier messages of the conversation, which may no longer be in the context."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from parsing import Arguments
from tools.base.outcome import Progress, Result, ToolFailed, required
from tools.tool import Context, Recalled

NAME = "recall_history"
FEW, MANY = 5, 20


async def recall_history(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
    """Return the best matches of this conversation, oldest first."""
    recall = required(context.recall, "No conversation is kept here. Go on with what you know.")
    found = await recall(context.session, arguments["query"], min(arguments.get("limit", FEW), MANY))
    if not found:
        raise ToolFailed("Nothing in this conversation has these words.", " Try others, or fewer.")
    strange = any(one.untrusted for one in found)
    yield Result(ok=True, text="\n\n".join(map(_shown, found)), untrusted=strange)


def _shown(one: Recalled) -> str:
    by = ", written by strangers" if one.untrusted else ""
    return f"[message {one.position + 1}, {one.author}{by}]\n{one.text}"
