"""Pictures and PDFs that belong to messages: stored once, known by what they hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attachment:
    """`sha256` is that of its bytes, `media_type` what they were found to be, whatever was said of them.

    `width` and `height` of a picture are pixels, `pages` are a PDF's; 0 where they could not be read.
    """

    sha256: str
    media_type: str
    size: int  # bytes
    name: str = ""
    width: int = 0
    height: int = 0
    pages: int = 0
