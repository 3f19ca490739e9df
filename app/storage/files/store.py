"""Stored files: attachments of messages and pictures of tools."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from app.storage.changes import Change, ChangeWriter


@dataclass(frozen=True, slots=True)
class FileRow(Change):
    """The bytes of a file, identified by their SHA-256; stored once."""

    sha256: str
    data: bytes = field(repr=False, metadata={"column": "bytes"})


@dataclass(frozen=True, slots=True)
class SessionFile(Change):
    """A reference of a session to a file, which is kept as long as there is one."""

    session: str
    sha256: str


class FileStore(ChangeWriter, Protocol):
    async def file(self, sha256: str, session: str | None = None) -> bytes | None:
        """The bytes of a file; with a `session` only if that session refers to it."""
        ...
