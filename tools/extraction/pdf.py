"""Text of PDFs, and pictures of their pages, by PDFium. Imported in the box only."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import pypdfium2
from pypdfium2 import raw

from tools.extraction.output import PICTURE, Refused, Sections

SIDE = 1_400  # pixels of the longer side of a picture
_COLOURED = 1 << 20  # bytes of a picture that is larger in colour: then it is grey
_LITTLE = 20  # characters of a page that may be a picture, such as a scan with a number below it
_LARGEST_SCALE = 3.0
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # by the bytes of a pixel


def pages(data: bytes, _: str) -> Sections:
    """Yield the text of each page; of one that cannot be read, none."""
    document = _opened(data)
    if document.get_formtype():
        with suppress(pypdfium2.PdfiumError):
            document.init_forms()
    for number in range(len(document)):
        text = ""
        with suppress(pypdfium2.PdfiumError):
            text = _text(document, number)
        yield f"page {number + 1}", text


def _opened(data: bytes) -> Any:
    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise Refused("is encrypted: ask for a copy without a password") from error
        raise Refused("is damaged: ask for another copy") from error


def _text(document: Any, number: int) -> str:
    page = document[number]
    try:
        if document.formenv and raw.FPDFPage_GetAnnotCount(page):  # what a form is filled in with becomes text
            page.flatten()
            page.close()
            page = document[number]
        text_page = page.get_textpage()
        try:
            text: str = text_page.get_text_bounded()  # what lies beside the page is not seen, and left out
        finally:
            text_page.close()
        kinds = [one.type for one in page.get_objects(max_depth=2)] if len(text.strip()) < _LITTLE else []
        if raw.FPDF_PAGEOBJ_IMAGE in kinds or (kinds and not text.strip()):
            text += PICTURE
    finally:
        page.close()
    return "\n".join(line.rstrip() for line in text.replace("\ufffe", "-").splitlines())


def pictures(data: bytes, numbers: Collection[int]) -> Iterator[bytes]:
    """Yield the pages with these numbers as PNG."""
    document = _opened(data)
    for number in numbers:
        if 0 < number <= len(document):
            with suppress(pypdfium2.PdfiumError):
                yield _picture(document[number - 1])


def _picture(page: Any) -> bytes:
    scale = min(_LARGEST_SCALE, SIDE / max(*page.get_size(), 1.0))
    coloured = _png(page.render(scale=scale, rev_byteorder=True))
    return coloured if len(coloured) <= _COLOURED else _png(page.render(scale=scale, grayscale=True))


def _png(bitmap: Any) -> bytes:
    """Encode a picture; https://www.w3.org/TR/png-3/."""
    held, row = bytes(bitmap.buffer), bitmap.width * bitmap.n_channels
    lines = b"".join(b"\0" + held[at : at + row] for at in range(0, bitmap.stride * bitmap.height, bitmap.stride))
    header = struct.pack(">II", bitmap.width, bitmap.height) + bytes((8, _COLOUR_TYPES[bitmap.n_channels], 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    )
