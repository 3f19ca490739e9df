"""Replies of scripted models: calls as text and native ones, text, commands."""

from __future__ import annotations

import json
from typing import Any

from app.core.provider import Finished, TextChunk
from app.models.scripted import Line
from parsing import Call


def tool_call(name: str, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def native_bash(command: str, index: int = 0) -> Call:
    return Call(index, "bash", {"command": command}, "native")


def native_call(name: str, **arguments: Any) -> Line:
    return Call(0, name, arguments, "native")


def says(text: str) -> list[Line]:
    return [TextChunk(text), Finished("stop")]


def in_background(command: str) -> list[Line]:
    return says(f"```bash\n#!bg\n{command}\n```\n")


def bash_block(command: str) -> str:
    return f"```bash\n{command}\n```"
