"""Replay of signed reasoning, unchanged and at its position among the blocks of its reply.

Models need the reasoning that led to their calls. Newer ones refuse or ignore it if anything before it has changed:
system prompt, tools, an earlier message or reasoning block
(https://platform.claude.com/docs/en/build-with-claude/preserved-thinking). So the metadata of each reply has a digest
of the history before it, and its reasoning is replayed only after exactly that history. Histories that were trimmed or
summarised are sent without reasoning, and are never refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from app.core.messages import AskedCall, Message, OpaqueMetadata
from app.models.wire.anthropic.blocks import Block, text_blocks, tool_use
from app.models.wire.call_ids import takes_plain
from app.models.wire.opaque_metadata import MOST, origin_of

BEFORE, CONTENT = "before", "content"  # fields of the metadata
THINKING = ("thinking", "redacted_thinking")


def metadata_origin(model: str, url: str) -> str:
    """Return the origin of the metadata, distinct from that of the same server's other wire format."""
    return f"{origin_of(model, url)}, messages"


class Digest:
    """Hash of the history before a reply, in the order in which the model reads it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, role: str, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self._hash.update(json.dumps([role, block], sort_keys=True).encode())

    def value(self) -> str:
        return self._hash.hexdigest()[:32]


def sealed(origin: str, before: str, content: Sequence[Block]) -> OpaqueMetadata | None:
    """Return a reply's blocks: reasoning whole, of the others what the message lacks, and gaps that only its text has.

    None if that is nothing: one text, and calls behind it.
    """
    kinds = [block["type"] for block in content if block.get("characters") != 0]
    if not (set(kinds) & {*THINKING} or "text" in kinds[1:]) or len(json.dumps(content)) > MOST:
        return None
    return OpaqueMetadata(origin, {BEFORE: before, CONTENT: list(content)})


def replayed(
    message: Message, calls: Sequence[AskedCall], ids: Mapping[str | None, str], origin: str, before: str
) -> list[Block] | None:
    """Return the blocks of a reply, each text and each call in its place.

    Its reasoning is there only for its own model (`origin`), and behind the history that it followed. None for a reply
    whose places are not known, or has been changed.
    """
    seal = message.sealed
    content = seal.fields.get(CONTENT) if seal else None
    is_own = seal is not None and seal.origin == origin
    thinks = is_own and seal is not None and seal.fields.get(BEFORE) == before
    text = message.text
    left = list(calls)
    blocks: list[Block] = []
    for block in content if isinstance(content, list) else ():
        match block:
            case {"type": "text", "characters": int(size)} if size <= len(text):
                blocks += text_blocks(text[:size])
                text = text[size:]
            case {"type": "gap", "characters": int(size)}:
                text = text[size:]
            case {"type": "tool_use", "id": str(id)} if left and id and (left[0].given or takes_plain(id)):
                call = left.pop(0)
                blocks.append(tool_use(call, id if is_own and not call.given else ids[call.id]))
            case {"type": "thinking" | "redacted_thinking"}:
                blocks += [block] if thinks else []
            case _:
                return None
    ends_well = bool(blocks) and blocks[-1]["type"] not in THINKING  # reasoning at the end is refused
    return blocks if ends_well and not text and not left else None


def reasoning_in(message: Message, origin: str) -> str:
    """Return the reasoning that may be sent back, for token counting."""
    seal = message.sealed
    content = seal.fields.get(CONTENT) if seal and seal.origin == origin else None
    texts = [block.get("thinking") for block in content or () if isinstance(block, dict)]
    return "".join(text for text in texts if isinstance(text, str))
