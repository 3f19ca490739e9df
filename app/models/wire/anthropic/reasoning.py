"""Thoughts that go back as they came, signed, in their place among the other blocks of their reply.

A model wants the thoughts behind its calls again. Newer ones refuse thoughts, or forget them, when anything that stood
before them has changed: system prompt, tools, an earlier message or thought
(https://platform.claude.com/docs/en/build-with-claude/preserved-thinking). So each reply is sealed with a digest of
what it was an answer to, and its thoughts go back only behind exactly that. Histories that were trimmed or summarised
are sent without them, and never refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from app.core.messages import AskedCall, Message, OpaqueMetadata
from app.models.wire.anthropic.blocks import Block, plain_id, text_blocks, tool_use
from app.models.wire.opaque_metadata import MOST, origin_of

BEFORE, CONTENT = "before", "content"  # fields of a seal
THINKING = ("thinking", "redacted_thinking")


def seal_origin(model: str, url: str) -> str:
    """Whose seals these are; the same server's other wire format has others."""
    return f"{origin_of(model, url)}, messages"


class Digest:
    """Of all that comes before a reply, in the order in which the model reads it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, role: str, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self._hash.update(json.dumps([role, block], sort_keys=True).encode())

    def told(self) -> str:
        return self._hash.hexdigest()[:32]


def sealed(origin: str, before: str, content: Sequence[Block]) -> OpaqueMetadata | None:
    """The reply's blocks in order: thoughts whole, of the others what is not in the message. None without thoughts."""
    if not any(block["type"] in THINKING for block in content) or len(json.dumps(content)) > MOST:
        return None
    return OpaqueMetadata(origin, {BEFORE: before, CONTENT: list(content)})


def replayed(message: Message, calls: Sequence[AskedCall], origin: str, before: str) -> list[Block] | None:
    """The blocks of the model's reply as they came; None if there were no thoughts, or something has changed."""
    seal = message.sealed
    if seal is None or seal.origin != origin or seal.fields.get(BEFORE) != before:
        return None
    return rebuilt(seal.fields.get(CONTENT), message.text, list(calls))


def rebuilt(content: Any, text: str, calls: list[AskedCall]) -> list[Block] | None:
    blocks: list[Block] = []
    for block in content if isinstance(content, list) else ():
        match block:
            case {"type": "text", "characters": int(size)} if size <= len(text):
                blocks += text_blocks(text[:size])
                text = text[size:]
            case {"type": "tool_use", "id": str(id)} if calls and id and id == plain_id(id):
                blocks.append(tool_use(calls.pop(0), id))
            case {"type": "thinking" | "redacted_thinking"}:
                blocks.append(block)
            case _:
                return None
    ends_well = bool(blocks) and blocks[-1]["type"] not in THINKING  # which is refused
    return blocks if ends_well and not text and not calls else None


def thoughts_in(message: Message, origin: str) -> str:
    """What may go back of them, for those who count tokens."""
    seal = message.sealed
    content = seal.fields.get(CONTENT) if seal and seal.origin == origin else None
    texts = [block.get("thinking") for block in content or () if isinstance(block, dict)]
    return "".join(text for text in texts if isinstance(text, str))
