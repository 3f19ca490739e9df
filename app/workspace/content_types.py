"""The media type of a file, from its first bytes; of texts also from its name, because all texts look alike."""

from __future__ import annotations

from codecs import getincrementaldecoder
from pathlib import PurePosixPath

from msgspec import Struct

from app.storage.files.kinds import KINDS

HEAD = 65_536  # bytes that are looked at
UNKNOWN, TEXT, ZIP = "application/octet-stream", "text/plain", "application/zip"
_OFFICE = "application/vnd.openxmlformats-officedocument"


class Signature(Struct, frozen=True):
    """Bytes at a place of files of one type."""

    media_type: str
    magic: bytes
    at: int = 0


SIGNATURES = (
    Signature("application/gzip", b"\x1f\x8b"),
    Signature("application/x-bzip2", b"BZh"),
    Signature("application/x-xz", b"\xfd7zXZ\0"),
    Signature("application/zstd", b"\x28\xb5\x2f\xfd"),
    Signature("application/x-7z-compressed", b"7z\xbc\xaf\x27\x1c"),
    Signature("application/vnd.rar", b"Rar!\x1a\x07"),
    Signature("application/x-tar", b"ustar", 257),
    Signature("application/vnd.sqlite3", b"SQLite format 3\0"),
    Signature("application/vnd.apache.parquet", b"PAR1"),
    Signature("application/x-ole-storage", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),  # Office before 2007
    Signature("application/rtf", b"{\\rtf"),
    Signature("audio/mpeg", b"ID3"),
    Signature("audio/ogg", b"OggS"),
    Signature("audio/flac", b"fLaC"),
    Signature("audio/wav", b"WAVE", 8),
    Signature("video/mp4", b"ftyp", 4),
    Signature("video/webm", b"\x1a\x45\xdf\xa3"),
    Signature("image/tiff", b"II*\0"),
    Signature("image/tiff", b"MM\0*"),
    Signature("image/bmp", b"BM"),
    Signature("application/x-executable", b"\x7fELF"),
)
# A ZIP archive that holds an entry of this name is a document.
IN_ZIP = (
    (b"word/", f"{_OFFICE}.wordprocessingml.document"),
    (b"xl/", f"{_OFFICE}.spreadsheetml.sheet"),
    (b"ppt/", f"{_OFFICE}.presentationml.presentation"),
    (b"mimetypeapplication/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text"),
    (b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet", "application/vnd.oasis.opendocument.spreadsheet"),
    (b"mimetypeapplication/vnd.oasis.opendocument.presentation", "application/vnd.oasis.opendocument.presentation"),
    (b"mimetypeapplication/epub+zip", "application/epub+zip"),
)
OF_NAMES = {
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".md": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".ipynb": "application/x-ipynb+json",
    ".xml": "application/xml",
    ".svg": "image/svg+xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "application/toml",
    ".sql": "application/sql",
    ".py": "text/x-python",
    ".sh": "application/x-sh",
}
DOCUMENTS, SHEETS, SLIDES = (media_type for _, media_type in IN_ZIP[:3])


def media_type_of(head: bytes, name: str, *, whole: bool = False) -> str:
    """The type of a file that begins with `head`. With `whole` that is all of it, so no character is cut at its end."""
    head, whole = head[:HEAD], whole and len(head) <= HEAD
    for kind in KINDS:
        if kind.is_it(head):
            return kind.media_type
    if head.startswith(b"PK\x03\x04"):
        return next((media_type for mark, media_type in IN_ZIP if mark in head), ZIP)
    if is_text(head, whole=whole):
        return OF_NAMES.get(PurePosixPath(name).suffix.lower(), TEXT)
    found = (one.media_type for one in SIGNATURES if head[one.at : one.at + len(one.magic)] == one.magic)
    return next(found, UNKNOWN)


def is_text(head: bytes, *, whole: bool = False) -> bool:
    """Return whether it is UTF-8 without control characters that texts do not have."""
    if b"\0" in head:
        return False
    try:
        getincrementaldecoder("utf-8")().decode(head, final=whole)
    except UnicodeDecodeError:
        return False
    return True
