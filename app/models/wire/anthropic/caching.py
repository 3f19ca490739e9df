"""Prompt caching: put at most four cache breakpoints behind the stable parts of a request.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.models.wire.anthropic.blocks import Block

EPHEMERAL = {"type": "ephemeral"}
TURNS = 2  # the last user turn, for the next request, and the one before, which the last request cached


def marked(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks with a breakpoint at the last one."""
    return [*blocks[:-1], blocks[-1] | {"cache_control": EPHEMERAL}] if blocks else []


def marked_turns(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with breakpoints at the last two user messages."""
    turns = [position for position, message in enumerate(messages) if message["role"] == "user"][-TURNS:]
    return [
        message | {"content": marked(message["content"])} if position in turns else message
        for position, message in enumerate(messages)
    ]
