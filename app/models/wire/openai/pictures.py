"""Pictures of a reply: `images` of a delta or message, as OpenRouter passes on what image models return."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from app.core.provider import PictureChunk, ProviderNotice
from tools.base.outcome import MOST_BYTES, MOST_PICTURES, is_picture

_BASE64 = ";base64,"
_MOST_CHARACTERS = 4 * (MOST_BYTES // 3 + 1)
LEFT_OUT = (
    f"{{count}} of the model's pictures could not be kept: a picture is a PNG, JPEG, GIF or WebP in base64, "
    f"of {MOST_BYTES >> 20} MB at most, and a reply has {MOST_PICTURES} at most."
)


class ReplyPictures:
    """Decodes them. Servers that repeat a picture in their last chunk mean one."""

    _known: frozenset[bytes] = frozenset()
    _kept = _left_out = 0

    def read(self, delta: dict[str, Any]) -> Iterator[PictureChunk]:
        images, content = delta.get("images"), delta.get("content")
        parts = [*(images if isinstance(images, list) else ()), *(content if isinstance(content, list) else ())]
        for part in parts:
            match part:
                case {"image_url": {"url": str(url)}} | {"image_url": str(url)}:
                    yield from self._picture(url)

    def close(self) -> Iterator[ProviderNotice]:
        if self._left_out:
            yield ProviderNotice("picture", LEFT_OUT.format(count=self._left_out))

    def _picture(self, url: str) -> Iterator[PictureChunk]:
        key = sha256(url.encode("utf-8", "replace")).digest()
        if key in self._known:
            return
        data = _decoded(url) if self._kept < MOST_PICTURES else b""
        self._known |= {key}
        if data:
            self._kept += 1
            yield PictureChunk(data)
        else:
            self._left_out += 1


def _decoded(url: str) -> bytes:
    """Return the picture of a data URL; nothing if it is none, or too large."""
    head, mark, text = url.partition(_BASE64)
    if not (mark and head.startswith("data:image/") and len(text) <= _MOST_CHARACTERS):
        return b""
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return data if len(data) <= MOST_BYTES and is_picture(data) else b""
