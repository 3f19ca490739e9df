"""read_result: pages through the result of an earlier call that was shown to the model in part."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from parsing import Arguments
from tools.base.outcome import Progress, Result, ToolFailed
from tools.tool import Context

NAME = "read_result"
_NOTE = 100  # room for the line that says where the page lies in the whole


async def read_result(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
    """Return one page, short enough for one result, and the offset of the next."""
    call, offset = arguments["call"], int(arguments.get("offset", 0))
    most = context.result_characters - _NOTE
    kept = await context.result(call, offset, min(int(arguments.get("size", most)), most)) if context.result else None
    if kept is None:
        raise ToolFailed(f"This conversation has no result of a call {call[:80]!r}. A result's own note has its id.")
    if offset >= max(kept.characters, 1):
        raise ToolFailed(f"The result of {call} has {kept.characters:,} characters: give an offset below that.")
    end = offset + len(kept.text)
    following = f"Next: offset={end}" if end < kept.characters else "This is the end"
    note = f"[Characters {offset:,} to {end:,} of {kept.characters:,}. {following}.]"
    yield Result(ok=True, text=f"{kept.text}\n{note}", untrusted=kept.untrusted)
