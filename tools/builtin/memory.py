"""The tools that keep, find and delete memories: what is known of a person in all of their conversations."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from parsing import Arguments
from tools.base.access import FACT, Memory
from tools.base.outcome import Progress, Result, ToolFailed, required
from tools.tool import Context

FEW, MANY = 5, 20
_OFF = "There is no memory in this run. Go on with what you know."
_UNTRUSTED = " It is marked: this conversation holds untrusted text."


async def remember(arguments: Arguments, context: Context) -> str:
    kept, is_new = await required(context.memory, _OFF).remember(arguments["text"], arguments.get("kind", FACT))
    if not is_new:
        return f"Known already as {kept.id}."
    return f"Remembered as {kept.id}.{_UNTRUSTED if kept.untrusted else ''}"


async def recall_memory(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
    """Return what has to do with the query, best first."""
    found = await required(context.memory, _OFF).recall(arguments["query"], min(arguments.get("limit", FEW), MANY))
    if not found:
        raise ToolFailed("No memory matches that. Try other words, or ask the person.")
    untrusted = any(one.untrusted for one in found)
    yield Result(ok=True, text="\n".join(map(_line, found)), untrusted=untrusted)


async def forget(arguments: Arguments, context: Context) -> str:
    """Delete a memory. The text is an argument, so that the person sees what the call deletes."""
    gone = await required(context.memory, _OFF).forget(arguments["id"], arguments["text"])
    return f"Forgotten: {gone.id}."


def _line(one: Memory) -> str:
    """One line, so that no text can look like another memory."""
    by = ", from an untrusted source" if one.untrusted else ""
    return f"[{one.id}, {one.kind}, {one.day}{by}] {' '.join(one.text.split())}"
