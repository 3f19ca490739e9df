"""Encode pictures and PDFs as parts of a message."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any

from msgspec import Struct

from app.core.attachments import PDF, Attachment, described
from app.core.provider import ModelRequest
from tools.base.hidden_fields import repr_without

Part = dict[str, Any]
Content = str | list[Part]
Encoded = Mapping[str, str]
"""Base64 data of files, or placeholders, by SHA-256."""

LARGE = 1 << 20  # bytes; larger files are encoded in a thread, to keep the event loop responsive


class EncodedFiles(Struct, frozen=True):
    """Files to insert into an encoded body: base64 needs no escaping, and escaping megabytes is slow.

    Until then random `marks` are placeholders, by SHA-256.
    """

    marks: Encoded
    data: Mapping[bytes, bytes]  # base64, by mark

    __repr__ = repr_without("data")

    def put_into(self, body: bytes) -> bytes:
        if not self.data:
            return body
        return re.sub(b"|".join(self.data), lambda found: self.data[found[0]], body)


async def encoded_files(request: ModelRequest) -> EncodedFiles:
    """Read and encode the attachments of a request, each once. Raises what `request.read` raises."""
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
    """Return OpenAI's content: files before the text. A file that is missing in `files` is described."""
    if not attachments:
        return text
    parts = [file_part(one, files[one.sha256]) for one in attachments if one.sha256 in files]
    descriptions = [described(one) for one in attachments if one.sha256 not in files]
    whole = "\n".join(filter(None, [*descriptions, text]))
    return [*parts, *as_parts(whole)] if parts else whole


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
    """Join the contents of two messages of one role."""
    if isinstance(first, str) and isinstance(second, str):
        return "\n\n".join(filter(None, (first, second)))
    return [*as_parts(first), *as_parts(second)]
