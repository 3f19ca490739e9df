"""Rows of pictures and PDFs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FileRow:
    """The bytes of a file, known by their SHA-256; kept once."""

    sha256: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SessionFile:
    """A session has this file: it stays as long as one has."""

    session: str
    sha256: str


FileChange = FileRow | SessionFile
