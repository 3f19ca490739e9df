"""Files of messages: stored once, identified by their hash. Models see pictures and PDFs; all are described."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from app.core.events import ImageReturned

PDF = "application/pdf"
SEEN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})  # pictures that models are sent
EXTENSIONS = {"text/plain": "txt", "text/csv": "csv", "application/json": "json", "application/zip": "zip"}
CANNOT = "this model cannot see it"
PICTURES_ONLY = "its pages are pictures without text, which read_file shows"


class Attachment(Struct, frozen=True):
    """`sha256` is that of its bytes; `media_type` is detected from them, whatever the request says.

    `width` and `height` of a picture are pixels, `pages` are those of a PDF; 0 where they are unknown. `about`
    describes a file of another type, and `path` is where it lies in the workspace. `text` is the beginning of a
    document's text, between delimiters, for models that cannot read its bytes.
    """

    sha256: str
    media_type: str
    size: int  # bytes
    name: str = ""
    width: int = 0
    height: int = 0
    pages: int = 0
    about: str = ""
    path: str = ""
    text: str = ""

    @property
    def ability(self) -> str:
        """The ability that a model needs to read it; none if no model does."""
        return "pdf" if self.media_type == PDF else "images" if self.media_type in SEEN else ""

    @property
    def extension(self) -> str:
        return self.media_type.partition("/")[2] if self.ability else EXTENSIONS.get(self.media_type, "bin")

    @property
    def kind(self) -> str:
        return {"pdf": "PDF", "images": "picture"}.get(self.ability, "file")

    @property
    def file_name(self) -> str:
        """Its name, or a descriptive one."""
        usual = {"PDF": "document"}.get(self.kind, self.kind)
        return self.name or f"{usual}.{self.extension}"


class File(Struct, frozen=True):
    """An attachment and its bytes, on the way into the store."""

    attachment: Attachment
    data: bytes


def image_event(file: File, call: str | None = None) -> ImageReturned:
    """The event of a picture that a call, or the model itself, has returned."""
    one = file.attachment
    return ImageReturned(one.sha256, one.media_type, one.size, call, width=one.width or None, height=one.height or None)


def described(attachment: Attachment, why: str = "") -> str:
    """A description for readers that cannot see it: `[picture cat.png, 800 x 600, image/png]`."""
    parts = [attachment.kind]
    if name := attachment.path or attachment.name:
        parts[0] += f" {name}"
    if attachment.width and attachment.height:
        parts.append(f"{attachment.width} x {attachment.height}")
    if attachment.pages:
        parts.append(f"{attachment.pages} {'page' if attachment.pages == 1 else 'pages'}")
    parts.append(attachment.media_type)
    if not attachment.ability:
        parts += [f"{attachment.size:,} bytes", *filter(None, [attachment.about])]
    if attachment.path:
        parts.append("in the workspace")
    return f"[{', '.join(parts)}{f': {why}' if why else ''}]"


def substitute(attachment: Attachment) -> str:
    """Return the text that stands in for a file that a model cannot read."""
    why = "" if attachment.text else attachment.about or CANNOT
    return "\n".join(filter(None, [described(attachment, why), attachment.text]))


def as_fields(attachment: Attachment) -> dict[str, Any]:
    """The attachment as a JSON object for clients; `about` and `path` only where they are known."""
    return {name: value for name, value in stored_fields(attachment).items() if name != "text"}


def stored_fields(attachment: Attachment) -> dict[str, Any]:
    fields = asdict(attachment)
    return {name: value for name, value in fields.items() if value or name not in ("about", "path", "text")}


def dumped(attachments: Iterable[Attachment]) -> str:
    return json.dumps([*map(stored_fields, attachments)])


def loaded(stored: str) -> tuple[Attachment, ...]:
    return tuple(Attachment(**fields) for fields in json.loads(stored))
