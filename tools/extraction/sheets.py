"""Tables of spreadsheets, by calamine: values as they were last computed. Imported in the box only."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any

from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetTypeEnum, SheetVisibleEnum

from tools.extraction.output import Refused, Sections, in_pieces, table_row


def sheets(data: bytes, _: str) -> Sections:
    """Yield the rows of each sheet; long ones in several sections."""
    try:
        workbook = CalamineWorkbook.from_filelike(io.BytesIO(data))
    except PasswordError as error:
        raise Refused("is encrypted: ask for a copy without a password") from error
    except CalamineError as error:
        raise Refused("is damaged: ask for another copy") from error
    for about in workbook.sheets_metadata:
        hidden = "" if about.visible is SheetVisibleEnum.Visible else " (hidden)"
        if about.typ is SheetTypeEnum.WorkSheet:
            try:
                yield from in_pieces(f"sheet {about.name}{hidden}", _rows(workbook, about.name))
            except CalamineError as error:
                raise Refused(f"has a damaged sheet {about.name}") from error


def old(data: bytes, suffix: str) -> Sections:
    """Yield the sheets of an Excel file before 2007. Other files of that time, and encrypted ones, are refused."""
    if "EncryptedPackage".encode("utf-16-le") in data:
        raise Refused("is encrypted: ask for a copy without a password")
    if not any(name.encode("utf-16-le") in data for name in ("Workbook", "Book")):
        raise Refused("is of Office before 2007: save it as DOCX or PPTX")
    return sheets(data, suffix)


def _rows(workbook: Any, name: str) -> Iterator[str]:
    for row in workbook.get_sheet_by_name(name).iter_rows():
        yield table_row([_cell(value) for value in row])


def _cell(value: Any) -> str:
    match value:
        case bool():
            return str(value).upper()
        case float() if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        case datetime():
            return value.isoformat(" ").removesuffix(" 00:00:00")
        case date() | time():
            return value.isoformat()
    return " ".join(str(value).split())
