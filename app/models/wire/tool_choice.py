"""`tool_choice` of chat completions: `none`, `auto`, `required`, or which tools may be called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from tools.tool import Tool

NONE, AUTO, REQUIRED = "none", "auto", "required"
ABOUT_TOOLS = ("tool_choice", "parallel_tool_calls")  # parameters that servers refuse without tools


class ToolChoice(Struct, frozen=True):
    """`mode` is NONE, AUTO or REQUIRED; `names` are the only tools that may be called, empty for all of them."""

    mode: str = AUTO
    names: tuple[str, ...] = ()

    def requires_call(self, tools: Sequence[Tool]) -> bool:
        """Return whether one of these tools must be called; not if the only ones that may be are others."""
        return self.mode == REQUIRED and (not self.names or any(tool.name in self.names for tool in tools))

    def offered(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """Return the tools that may be called; all of them if none has such a name."""
        chosen = [tool for tool in tools if tool.name in self.names]
        return chosen or tools


def tool_choice(parameters: Mapping[str, Any]) -> ToolChoice:
    """Return the choice of these parameters; AUTO for one that is none of the known forms."""
    match parameters.get("tool_choice"):
        case "none" | "required" as mode:
            return ToolChoice(mode)
        case "any":  # Mistral's word
            return ToolChoice(REQUIRED)
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return ToolChoice(REQUIRED, (name,))
        case {"type": "allowed_tools", "allowed_tools": {"tools": list(tools), **rest}}:
            return ToolChoice(_mode(rest), tuple(_names(tools)))
        case {"type": "allowed_tools", "tools": list(tools), **rest}:
            return ToolChoice(_mode(rest), tuple(_names(tools)))
    return ToolChoice()


def may_call(parameters: Mapping[str, Any]) -> bool:
    """Return False if the client wants no calls: what looks like one is text then."""
    return tool_choice(parameters).mode != NONE


def _mode(allowed: Mapping[Any, Any]) -> str:
    return REQUIRED if allowed.get("mode") == REQUIRED else AUTO


def _names(tools: Sequence[Any]) -> list[str]:
    functions = [one.get("function", one) for one in tools if isinstance(one, dict)]
    return [one["name"] for one in functions if isinstance(one, dict) and isinstance(one.get("name"), str)]
