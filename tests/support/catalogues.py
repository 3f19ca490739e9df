"""Catalogues of tools larger than the one that ships, for the tests of their budgets."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tools.catalogue import TOOLS
from tools.tool import Tool

ROOM = 20  # tools that the budgets leave room for
_NAMES = ("copy_file", "move_file", "search_text", "read_image", "query_data", "send_mail", "list_events", "take_note")


def grown(size: int = ROOM, tools: Sequence[Tool] = TOOLS) -> list[Tool]:
    """The catalogue with further tools, whose rows are as long as the present ones, up to `size`."""
    more = range(size - len(tools))
    names = [*_NAMES, *(f"further_tool_{number}" for number in more)]
    return [*tools, *(replace(tools[number % len(tools)], name=names[number]) for number in more)]
