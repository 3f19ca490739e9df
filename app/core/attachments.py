"""Pictures and PDFs of messages: stored once, identified by their hash."""

from __future__ import annotations

import json
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import asdict

PDF = "application/pdf"
CANNOT = "this model cannot see it"


class Attachment(Struct, frozen=True):
    """`sha256` is that of its bytes; `media_type` is detected from them, whatever the request says.

    `width` and `height` of a picture are pixels, `pages` are those of a PDF; 0 where they are unknown.
    """

    sha256: str
    media_type: str
    size: int  # bytes
    name: str = ""
    width: int = 0
    height: int = 0
    pages: int = 0

    @property
    def ability(self) -> str:
        """The ability that a model needs to read it."""
        return "pdf" if self.media_type == PDF else "images"

    @property
    def extension(self) -> str:
        return self.media_type.partition("/")[2]

    @property
    def file_name(self) -> str:
        """Its name, or a descriptive one."""
        return self.name or f"{'document' if self.media_type == PDF else 'picture'}.{self.extension}"


class File(Struct, frozen=True):
    """An attachment and its bytes, on the way into the store."""

    attachment: Attachment
    data: bytes


def described(attachment: Attachment, why: str = "") -> str:
    """A description for readers that cannot see it: `[picture cat.png, 800 x 600, image/png]`."""
    parts = ["PDF" if attachment.media_type == PDF else "picture"]
    if attachment.name:
        parts[0] += f" {attachment.name}"
    if attachment.width and attachment.height:
        parts.append(f"{attachment.width} x {attachment.height}")
    if attachment.pages:
        parts.append(f"{attachment.pages} {'page' if attachment.pages == 1 else 'pages'}")
    parts.append(attachment.media_type)
    return f"[{', '.join(parts)}{f': {why}' if why else ''}]"


def dumped(attachments: Iterable[Attachment]) -> str:
    return json.dumps([asdict(one) for one in attachments])


def loaded(stored: str) -> tuple[Attachment, ...]:
    return tuple(Attachment(**fields) for fields in json.loads(stored))
