"""The formats of documents, one row each: found by content first, among texts also by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tools.base.patterns import lazy_pattern

MOST_BYTES = 64 << 20  # of a document
HEAD = 65_536  # bytes of a file's beginning, and of its end, that a format is found in


class Format(NamedTuple):  # imported in the box, each start of which would pay for more
    """A row. `marks`: bytes of which one is in every such file, in the directory of a ZIP archive at its end.

    `unit` is the part that its sections are, as in `page 3`. `is_plain`: it can be read as it is, if with effort.
    """

    kind: str
    unit: str
    marks: tuple[bytes, ...] = ()
    suffixes: tuple[str, ...] = ()
    is_plain: bool = False


PDF = Format("PDF", "page", (b"%PDF-",))
OFFICE = (
    Format("DOCX", "page", (b"word/document.xml",)),
    Format("XLSX", "sheet", (b"xl/workbook.xml", b"xl/workbook.bin")),
    Format("PPTX", "slide", (b"ppt/presentation.xml",)),
    Format("ODT", "page", (b"mimetypeapplication/vnd.oasis.opendocument.text",)),
    Format("ODS", "sheet", (b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet",)),
    Format("ODP", "slide", (b"mimetypeapplication/vnd.oasis.opendocument.presentation",)),
    Format("EPUB", "chapter", (b"mimetypeapplication/epub+zip",)),
)
EML = Format("EML", "part", suffixes=(".eml",))
HTML = Format("HTML", "part", suffixes=(".html", ".htm", ".xhtml"), is_plain=True)
CSV = Format("CSV", "part", suffixes=(".csv", ".tsv"), is_plain=True)
OLD = Format("XLS", "sheet", (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",))  # encrypted ones, too
FORMATS = (PDF, *OFFICE, EML, HTML, CSV, OLD)
BY_KIND: Mapping[str, Format] = {row.kind: row for row in FORMATS}
_ZIP = b"PK\x03\x04"
_PDF_WITHIN = 1024  # readers accept that much in front of the header
_PDF_ENDS = b"startxref"  # with which a text that only names the header does not
_HTML = lazy_pattern(rb"(?is)\s*(?:<\?xml[^>]*>\s*)?(?:<!--.{0,500}?-->\s*)?<(?:!doctype\s+html|html)\b")
_EML = lazy_pattern(
    rb"(?sm)(?:From (?!\w+ Mon Sep 17 00:00:00 2001$)|"  # not a patch of git
    rb"(?:Return-Path|Received|Delivered-To|MIME-Version|Message-ID|From|To|Date|Subject):)"
    rb"(?=.*?^(?:From|To|Subject):)(?=.*?^(?:Date|MIME-Version|Message-ID):)"
)


def format_of(head: bytes, tail: bytes = b"", name: str = "") -> Format | None:
    """Return the format of a file with this beginning and end, None if it is no document."""
    if head.startswith(PDF.marks) or (PDF.marks[0] in head[:_PDF_WITHIN] and _PDF_ENDS in tail):
        return PDF
    if head.startswith(OLD.marks):
        return OLD
    if head.startswith(_ZIP):
        return next((row for row in OFFICE if any(mark in head or mark in tail for mark in row.marks)), None)
    if b"\0" in head[:512] and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return None
    if _HTML.match(head):
        return HTML
    suffix = name[name.rfind(".") :].lower()
    named = next((row for row in (EML, HTML, CSV) if suffix in row.suffixes), None)
    return named or (EML if _EML.match(head[:4096]) else None)
