"""Stored files: attachments of messages and pictures of tools."""

from __future__ import annotations

from typing import Protocol

from msgspec import field

from app.storage.changes import Change, ChangeWriter
from tools.base.hidden_fields import repr_without


class FileRow(Change, frozen=True):
    """The bytes of a file, identified by their SHA-256; stored once."""

    sha256: str
    data: bytes = field(name="bytes")

    __repr__ = repr_without("data")


class SessionFile(Change, frozen=True):
    """A reference of a session to a file, which is kept as long as there is one."""

    session: str
    sha256: str


class FileStore(ChangeWriter, Protocol):
    async def file(self, sha256: str, session: str | None = None) -> bytes | None:
        """The bytes of a file; with a `session` only if that session refers to it."""
