"""Pictures and PDFs as parts of a message to a model."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from app.core.attachments import PDF, Attachment, described
from app.core.provider import ModelRequest

Part = dict[str, Any]
Content = str | list[Part]
Encoded = Mapping[str, str]
"""Base64 of files, or what stands for it, by their SHA-256."""

LARGE = 1 << 20  # bytes; more of them would hold up all other runs while they are encoded


@dataclass(frozen=True, slots=True)
class EncodedFiles:
    """Files that are put into a body once it is encoded: base64 needs no escaping, and megabytes of it take long.

    Until then `marks` stand for them, by SHA-256. Nobody can write one by chance.
    """

    marks: Encoded
    data: Mapping[bytes, bytes] = field(repr=False)  # base64, by mark

    def put_into(self, body: bytes) -> bytes:
        if not self.data:
            return body
        return re.sub(b"|".join(self.data), lambda found: self.data[found[0]], body)


async def encoded_files(request: ModelRequest) -> EncodedFiles:
    """Whatever is attached to the request's messages, each once. Raises what `request.read` raises."""
    if request.read is None:
        return EncodedFiles({}, {})
    wanted = (one.sha256 for message in request.messages for one in message.attachments)
    marks = {sha256: token_hex(16) for sha256 in wanted}
    return EncodedFiles(
        marks,
        {mark.encode("ascii"): await _encoded(await request.read(sha256)) for sha256, mark in marks.items()},
    )


async def _encoded(data: bytes) -> bytes:
    return b64encode(data) if len(data) < LARGE else await asyncio.to_thread(b64encode, data)


def with_files(text: str, attachments: Sequence[Attachment], files: Encoded) -> Content:
    """OpenAI's form: files in front of the words that speak of them. One that is not among `files` is described."""
    if not attachments:
        return text
    parts = [file_part(one, files[one.sha256]) for one in attachments if one.sha256 in files]
    words = [described(one) for one in attachments if one.sha256 not in files]
    said = "\n".join(filter(None, [*words, text]))
    return [*parts, *as_parts(said)] if parts else said


def file_part(attachment: Attachment, data: str) -> Part:
    url = f"data:{attachment.media_type};base64,{data}"
    if attachment.media_type == PDF:
        return {"type": "file", "file": {"filename": attachment.file_name, "file_data": url}}
    return {"type": "image_url", "image_url": {"url": url}}


def as_parts(content: Content) -> list[Part]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


def joined(first: Content, second: Content) -> Content:
    """Two messages of one role as one."""
    if isinstance(first, str) and isinstance(second, str):
        return "\n\n".join(filter(None, (first, second)))
    return [*as_parts(first), *as_parts(second)]
