"""The type of a file and its size, from its first bytes: nothing is decoded, because a picture may be a bomb."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from msgspec import Struct

from app.core.attachments import PDF, Attachment, File
from tools.base.patterns import lazy_pattern

LARGEST = 10_000_000  # pixels of a side, pages: a header that declares more is not believed
PDF_BEGINS_WITHIN = 1024  # bytes: readers accept that much in front of the header
JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers of segments with the picture's size
JPEG_ALONE = frozenset(range(0xD0, 0xDA)) | {0x01}  # markers without a segment
JPEG_DATA = 0xDA
MOST_SEGMENTS = 4096  # fillers between them included
_PAGE = lazy_pattern(rb"/Type\s{0,8}/Page(?![A-Za-z])")
_PAGES_OF_LINEARIZED = lazy_pattern(rb"/Linearized[^>]{0,512}/N\s{1,8}(\d{1,7})")

Size = tuple[int, int]


class UnknownKind(Exception):
    """The bytes are of no supported type. The message lists those that are."""

    def __init__(self) -> None:
        supported = ", ".join(kind.name for kind in KINDS)
        super().__init__(f"its bytes are none of {supported}; convert it, or send its text")


class FileKind(Struct, frozen=True):
    """A row of KINDS. `size` reads width and height of a picture, (0, 0) if its header has none."""

    name: str
    media_type: str
    is_it: Callable[[bytes], bool]
    size: Callable[[bytes], Size] = lambda data: (0, 0)
    pages: Callable[[bytes], int] = lambda data: 0


def png_size(data: bytes) -> Size:
    return (_big(data, 16, 4), _big(data, 20, 4)) if data[12:16] == b"IHDR" else (0, 0)


def gif_size(data: bytes) -> Size:
    return _little(data, 6, 2), _little(data, 8, 2)


def jpeg_size(data: bytes) -> Size:
    """The size of the first frame: segments are skipped, not read."""
    at = 2
    for _ in range(MOST_SEGMENTS):
        if data[at : at + 2] == b"\xff\xff":
            at += 1  # a filler
            continue
        if data[at : at + 1] != b"\xff" or (marker := _big(data, at + 1, 1)) == JPEG_DATA:
            break
        if marker in JPEG_SIZES:
            return _big(data, at + 7, 2), _big(data, at + 5, 2)
        at += 2 if marker in JPEG_ALONE else 2 + _big(data, at + 2, 2)
    return 0, 0


def webp_size(data: bytes) -> Size:
    match data[12:16]:
        case b"VP8X":
            return _little(data, 24, 3) + 1, _little(data, 27, 3) + 1
        case b"VP8L":
            bits = _little(data, 21, 4)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF
    return 0, 0


def pdf_pages(data: bytes) -> int:
    """The number of pages, as far as it is known without decompression."""
    if declared := _PAGES_OF_LINEARIZED.search(data, 0, 2 * PDF_BEGINS_WITHIN):
        return int(declared[1])
    return sum(1 for _ in _PAGE.finditer(data))


def _big(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "big")


def _little(data: bytes, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "little")


KINDS = (
    FileKind("PNG", "image/png", lambda data: data.startswith(b"\x89PNG\r\n\x1a\n"), png_size),
    FileKind("JPEG", "image/jpeg", lambda data: data.startswith(b"\xff\xd8\xff"), jpeg_size),
    FileKind("GIF", "image/gif", lambda data: data.startswith((b"GIF87a", b"GIF89a")), gif_size),
    FileKind("WebP", "image/webp", lambda data: data.startswith(b"RIFF") and data[8:12] == b"WEBP", webp_size),
    FileKind("PDF", PDF, lambda data: b"%PDF-" in data[:PDF_BEGINS_WITHIN], pages=pdf_pages),
)
PICTURES = frozenset(kind.media_type for kind in KINDS) - {PDF}


def kind_of(data: bytes) -> FileKind:
    """The type of a file, from its bytes. Raises UnknownKind."""
    for kind in KINDS:
        if kind.is_it(data):
            return kind
    raise UnknownKind


def file_of(data: bytes, name: str = "") -> File:
    """The file with its type and size. Raises UnknownKind."""
    kind = kind_of(data)
    width, height = kind.size(data)
    known = width <= LARGEST and height <= LARGEST and width and height
    pages = kind.pages(data)
    attachment = Attachment(
        sha256(data).hexdigest(),
        kind.media_type,
        len(data),
        name,
        width=width if known else 0,
        height=height if known else 0,
        pages=pages if pages <= LARGEST else 0,
    )
    return File(attachment, data)
