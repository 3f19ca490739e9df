"""Pictures and PDFs that belong to messages: stored once, known by what they hold."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

PDF = "application/pdf"
CANNOT = "this model cannot see it"


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

    @property
    def ability(self) -> str:
        """What a model needs to read it."""
        return "pdf" if self.media_type == PDF else "images"

    @property
    def extension(self) -> str:
        return self.media_type.partition("/")[2]

    @property
    def file_name(self) -> str:
        """Its name, or one that says what it is."""
        return self.name or f"{'document' if self.media_type == PDF else 'picture'}.{self.extension}"


@dataclass(frozen=True, slots=True)
class File:
    """An attachment and its bytes, on the way into the store."""

    attachment: Attachment
    data: bytes


def described(attachment: Attachment, why: str = "") -> str:
    """The attachment in words, for who cannot see it: `[picture cat.png, 800 x 600, image/png]`."""
    told = ["PDF" if attachment.media_type == PDF else "picture"]
    if attachment.name:
        told[0] += f" {attachment.name}"
    if attachment.width and attachment.height:
        told.append(f"{attachment.width} x {attachment.height}")
    if attachment.pages:
        told.append(f"{attachment.pages} {'page' if attachment.pages == 1 else 'pages'}")
    told.append(attachment.media_type)
    return f"[{', '.join(told)}{f': {why}' if why else ''}]"


def dumped(attachments: Iterable[Attachment]) -> str:
    return json.dumps([asdict(one) for one in attachments])


def loaded(stored: str) -> tuple[Attachment, ...]:
    return tuple(Attachment(**fields) for fields in json.loads(stored))
