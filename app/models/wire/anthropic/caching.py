"""Where the model's server is told to keep what it has read: at most four places, behind what stays the same.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.models.wire.anthropic.blocks import Block

EPHEMERAL = {"type": "ephemeral"}
TURNS = 2  # the last, for the next request, and the one before, where the last request was kept


def marked(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, to be kept up to the last of them."""
    return [*blocks[:-1], blocks[-1] | {"cache_control": EPHEMERAL}] if blocks else []


def marked_turns(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, to be kept up to the last words of the person, and up to those before."""
    turns = [position for position, message in enumerate(messages) if message["role"] == "user"][-TURNS:]
    return [
        message | {"content": marked(message["content"])} if position in turns else message
        for position, message in enumerate(messages)
    ]
