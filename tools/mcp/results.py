"""Conversion of a server's result to one text for the model, with a line for each piece that is not text."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from tools.base.escape_invisible import visible
from tools.base.outcome import shown_pictures
from tools.base.patterns import lazy_pattern
from tools.base.texts import shortened

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

LONG = 64_000  # characters, which a search for what is hidden takes milliseconds for
MAX_TEXT = 2_000_000  # the model gets head and tail, and can read the rest in pages
_NOTE = 300  # room for the sentence that stands where the middle was
_LINE = 300  # characters of a name, a URI or a description

Keep = Callable[[bytes], Awaitable[str]]
"""Store content that is not text; return a description of it."""

_SPACES = lazy_pattern(r"\s+")


async def result_text(result: CallToolResult, notes: Sequence[str], keep: Keep) -> str:
    """Return the text of a result, at most MAX_TEXT characters, and notes about it."""
    text = "\n".join([await _content(block, keep) for block in result.content if _is_for_model(block)])
    structured = result.structured_content
    if structured is not None and not _is_in_text(structured, result.content):
        text = "\n".join(filter(None, (text, json.dumps(structured, ensure_ascii=False))))
    shown = _cut(text) if len(text) < LONG else await asyncio.to_thread(_cut, text)
    return "\n".join([shown or "(no content)", *(f"[{line(note)}]" for note in notes)])


def pictures_of(result: CallToolResult) -> tuple[bytes, ...]:
    """Return the pictures that are for the model."""
    blocks = (block for block in result.content if block.type == "image" and _is_for_model(block))
    return shown_pictures(data for block in blocks if (data := _decoded(block.data)))


def _is_for_model(block: ContentBlock) -> bool:
    audience = block.annotations.audience if block.annotations else None
    return audience is None or "assistant" in audience


def _decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError):
        return None


def line(text: str) -> str:
    """Return untrusted text as part of one line: without line breaks and invisible characters, shortened."""
    return shortened(_SPACES.sub(" ", visible(text[: 9 * _LINE])).strip(), _LINE)


async def _content(block: ContentBlock, keep: Keep) -> str:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return await _blob(block.type, block.mime_type, block.data, keep)
        case "resource_link":
            parts = [block.title or block.name, block.description, block.mime_type]
            return f"[link: {line(block.uri)} ({line(', '.join(filter(None, parts)))})]"
        case "resource":
            resource = block.resource
            if text := getattr(resource, "text", None):
                return f"[resource {line(resource.uri)}]\n{text}"
            return await _blob(
                f"resource {line(resource.uri)}", resource.mime_type, getattr(resource, "blob", ""), keep
            )


async def piece_of(block: ContentBlock) -> str:
    """Return the text of a block of a prompt, whomever it is for; a line stands for what is not text."""

    async def not_kept(_: bytes) -> str:
        return "left out"

    return await _content(block, not_kept)


async def _blob(what: str, mime_type: str | None, data: str, keep: Keep) -> str:
    kind = line(mime_type or "application/octet-stream")
    if (raw := _decoded(data)) is None:
        return f"[{what}: {kind}, damaged]"
    if not raw:
        return f"[{what}: {kind}, empty]"
    return f"[{what}: {kind}, {len(raw):,} bytes, {await keep(raw)}]"


def _is_in_text(structured: Any, content: Sequence[ContentBlock]) -> bool:
    """Return whether the text blocks repeat the structured content, or its wrapped value."""
    wrapped = structured["result"] if isinstance(structured, dict) and set(structured) == {"result"} else structured
    texts = [block.text for block in content if block.type == "text"]
    if isinstance(wrapped, list) and len(texts) == len(wrapped) > 1 and list(map(_read, texts)) == wrapped:
        return True
    return any(text == wrapped or _read(text) in (structured, wrapped) for text in texts)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _cut(text: str) -> str:
    """Head and tail of what is too long."""
    if len(text) <= MAX_TEXT:
        return _shown(text)
    half = (MAX_TEXT - _NOTE) // 2
    note = f"[... {len(text) - 2 * half:,} characters left out: ask the server for less at a time ...]"
    return f"{_shown(text[:half])}\n{note}\n{_shown(text[-half:])}"


def _shown(text: str) -> str:
    seen = visible(text)
    gone = len(text) - len(seen)
    return f"{seen}\n[{gone:,} hidden characters were left out.]" if gone else seen
