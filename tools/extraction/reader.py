"""Reads one document in the box: its bytes on stdin, lines of JSON on stdout. Imports what reads hostile data.

The kernel bounds what it may take: CPU time, memory, no files. Nothing of the server is known here.
"""

from __future__ import annotations

import resource
import signal
import struct
import sys
import zlib
from base64 import b64encode
from collections.abc import Callable
from importlib import import_module
from typing import Any
from zipfile import BadZipFile

from tools.extraction.formats import BY_KIND, HEAD, MOST_BYTES, Format, format_of
from tools.extraction.output import ENDS, OutOfTime, Refused, put, put_sections

_MEMORY = 1 << 30
_KILLED_S = 5  # of CPU time more, when a library does not come back
_DAMAGED = "is damaged: ask for another copy"
# Whatever a library raises for a file that is not what it seems.
_FAILURES = (
    BadZipFile, zlib.error, struct.error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError,
    EOFError, OSError, RuntimeError, NotImplementedError, RecursionError,
)  # fmt: skip
# The function that reads a kind, by its module: imported when it is needed.
READERS = {
    "PDF": "pdf.pages",
    "DOCX": "office.document",
    "PPTX": "office.slides",
    "ODT": "office.open_document",
    "ODP": "office.open_document",
    "EPUB": "office.book",
    "XLSX": "sheets.sheets",
    "ODS": "sheets.sheets",
    "XLS": "sheets.old",
    "CSV": "texts.table",
    "HTML": "texts.page",
    "EML": "texts.mail",
}


def main(suffix: str, seconds: str, pages: str = "") -> None:
    """Write the sections of the document, or with `pages` pictures of these pages."""
    sys.stdout.reconfigure(encoding="ascii")  # type: ignore[union-attr]
    _bound(int(seconds))
    data = sys.stdin.buffer.read(MOST_BYTES)
    found = format_of(data[:HEAD], data[-HEAD:], suffix)
    try:
        if found is None:
            raise Refused("is no document that can be read")
        if pages:
            for picture in _function("pdf.pictures")(data, [int(one) for one in pages.split(",")]):
                put(picture=b64encode(picture).decode())
        else:
            _read(found, data, suffix)
    except Refused as refusal:
        put(refused=str(refusal))
    except ModuleNotFoundError as error:
        put(refused=f"needs {error.name} to be read: pip install 'dragoman[documents]' on the server")


def _read(found: Format, data: bytes, suffix: str) -> None:
    put(kind=found.kind)
    sections = _function(READERS[found.kind])(data, suffix)
    try:
        left_out = put_sections(sections)
    except OutOfTime:
        left_out = "the rest, because reading it took too long"
    except MemoryError:
        left_out = "the rest, because reading it takes too much memory"
    except (*_FAILURES, Refused) as error:
        left_out = f"the rest: it {error if isinstance(error, Refused) else _DAMAGED}"
    put(left_out=left_out)


def _function(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(".")
    found: Callable[..., Any] = getattr(import_module(f"{__package__}.{module}"), name)
    return found


def _bound(seconds: int) -> None:
    cpu = seconds + _KILLED_S
    for limit, value in (
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    for number in ENDS:
        signal.signal(number, _end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 1.5 * seconds)  # where other programs take the time


def _end(*_: object) -> None:
    raise OutOfTime


assert READERS.keys() == BY_KIND.keys()
