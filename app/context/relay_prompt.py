"""The opening of a relay: the tools of a client, for a model whose server takes none, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.context.prompt import TEACHINGS, within
from app.core.messages import Message
from app.core.provider import CallForm
from app.models.wire.tool_choice import NONE, REQUIRED, tool_choice
from tools.tool import Tool

MOST_TOOLS = 400_000  # characters: command line clients offer 20 to 40 KB of tools
TOOLS = "You can call these tools. Each line is one, as JSON: its name, description and the schema of its arguments."
SEVERAL = "For several calls, write one after the other. Then end your answer: the results come in the next message."
IF_NEEDED = "Call a tool only if you need one; else answer in plain text."
CALL_NOW = "Now you must call {names}: answer with the call."


def relay_opening(
    call_form: CallForm, tools: Sequence[Tool], parameters: Mapping[str, Any] | None = None
) -> tuple[Message, ...]:
    """Return the system message that teaches the tools in this form; none without tools or where they are native.

    `tool_choice` of the parameters, which are those of chat completions, decides which tools may or must be called.
    """
    choice = tool_choice(parameters or {})
    teaching = TEACHINGS.get(call_form)
    if not tools or teaching is None or choice.mode == NONE:
        return ()
    offered = choice.offered(tools)
    listed = "\n".join([TOOLS, *described_tools(offered)])
    rule = f"To call a tool, {teaching.rule} {SEVERAL}"
    names = offered[0].name if len(offered) == 1 else "one of the tools"
    urgency = CALL_NOW.format(names=names) if choice.mode == REQUIRED else IF_NEEDED
    return (Message("system", f"{within(MOST_TOOLS, listed)}\n\n{rule} {urgency}"),)


def described_tools(tools: Sequence[Tool]) -> Iterator[str]:
    """Yield the line of each tool, as far as there is room for one."""
    room = MOST_TOOLS
    for tool in tools:
        if room < 0:
            return
        yield (line := described(tool))
        room -= len(line)


def described(tool: Tool) -> str:
    """Return one line of JSON about a tool."""
    about = {"name": tool.name, "description": tool.description, "arguments": tool.parameters}
    return json.dumps({name: value for name, value in about.items() if value}, ensure_ascii=False)
