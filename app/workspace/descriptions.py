"""Short descriptions of files for a model that does not read their bytes: lines, columns, entries, sheets, slides.

Nothing is unpacked but the few entries of an Office document that say these numbers, and of each only the beginning.
"""

from __future__ import annotations

import csv
import io
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from itertools import islice

from app.workspace.content_types import DOCUMENTS, SHEETS, SLIDES, ZIP
from tools.base.patterns import lazy_pattern

MOST_ENTRIES = 5_000  # of an archive that is looked into
MOST_READ = 262_144  # bytes of an entry
MOST_LINE = 65_536  # characters of a table's first line
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error, csv.Error)
_UNREADABLE = (*_BROKEN, ValueError, OSError, KeyError, EOFError, RuntimeError, NotImplementedError, OverflowError)
_ENTRY_OF_ZIP = b"PK\x01\x02"
_END_OF_ZIP = b"PK\x05\x06"
_END_ROOM = 65_557  # bytes in which the end of a ZIP archive stands
_SHEET = lazy_pattern(rb"<(?:\w+:)?sheet\s")
_SLIDE = lazy_pattern(r"ppt/slides/slide\d+\.xml")
_PAGES = lazy_pattern(rb"<Pages>(\d{1,7})</Pages>")


def description_of(data: bytes, media_type: str) -> str:
    """Return the description of a file of this type, or an empty text."""
    describe = DESCRIBED.get(media_type) or (_lines if media_type.startswith("text/") else None)
    try:
        return describe(data) if describe else ""
    except _UNREADABLE:
        return "damaged, or not readable"


def _counted(number: int, noun: str, *, more: bool = False) -> str:
    many = "entries" if noun == "entry" else f"{noun}s"
    return f"{number:,}{' or more' if more else ''} {noun if number == 1 and not more else many}"


def _lines(data: bytes) -> str:
    return _counted(data.count(b"\n") + bool(data and not data.endswith(b"\n")), "line")


def _table(data: bytes) -> str:
    first = data[: 4 * MOST_LINE].decode("utf-8-sig", errors="replace").split("\n", 1)[0][:MOST_LINE]
    delimiter = max(",;\t|", key=first.count)
    columns = next(csv.reader([first], delimiter=delimiter), [])
    return f"{_lines(data)}, {_counted(len(columns), 'column')}"


def _zip(data: bytes) -> str:
    """Count the entries as the archive's end says it; reading them all may take seconds."""
    at = data.rfind(_END_OF_ZIP, max(0, len(data) - _END_ROOM))
    if at < 0:
        raise zipfile.BadZipFile
    return _counted(struct.unpack_from("<H", data, at + 10)[0], "entry")


def _opened(data: bytes) -> zipfile.ZipFile:
    if data.count(_ENTRY_OF_ZIP) > MOST_ENTRIES:  # counted, because the end may say less
        raise zipfile.BadZipFile
    return zipfile.ZipFile(io.BytesIO(data))


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as entry:
        return entry.read(MOST_READ)


def _sheets(data: bytes) -> str:
    with _opened(data) as archive:
        return _counted(len(_SHEET.findall(_read(archive, "xl/workbook.xml"))), "sheet")


def _slides(data: bytes) -> str:
    with _opened(data) as archive:
        return _counted(sum(bool(_SLIDE.fullmatch(name)) for name in archive.namelist()), "slide")


def _pages(data: bytes) -> str:
    with _opened(data) as archive:
        if "docProps/app.xml" not in archive.namelist():
            return ""
        found: re.Match[bytes] | None = _PAGES.search(_read(archive, "docProps/app.xml"))
    return _counted(int(found[1]), "page") if found else ""


def _tar(data: bytes) -> str:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        entries = sum(1 for _ in islice(archive, MOST_ENTRIES))
    return _counted(entries, "entry", more=entries == MOST_ENTRIES)


DESCRIBED: Mapping[str, Callable[[bytes], str]] = {
    "text/csv": _table,
    "text/tab-separated-values": _table,
    "application/json": _lines,
    "application/jsonl": _lines,
    "application/yaml": _lines,
    "application/xml": _lines,
    ZIP: _zip,
    DOCUMENTS: _pages,
    SHEETS: _sheets,
    SLIDES: _slides,
    "application/x-tar": _tar,
}
