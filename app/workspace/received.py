"""Any file of a message: a picture or a PDF as models see them, everything else by its type and a description."""

from __future__ import annotations

from hashlib import sha256

from app.core.attachments import Attachment, File
from app.storage.files.kinds import UnknownKind, file_of
from app.workspace.content_types import media_type_of


def received_file(data: bytes, name: str) -> File:
    """The file with its type and size. Reads all of it."""
    try:
        return file_of(data, name)
    except UnknownKind:
        from app.workspace.descriptions import description_of  # with modules for archives, which few servers need

        media_type = media_type_of(data, name, whole=True)
        about = description_of(data, media_type)
        return File(Attachment(sha256(data).hexdigest(), media_type, len(data), name, about=about), data)
