"""Text of documents that are XML in a ZIP archive: DOCX, PPTX, OpenDocument, EPUB. Imported in the box only.

Parts are unpacked in blocks and read as they come, without a tree: a bomb costs time, which is bounded, and no memory.
Entities are not declared by any such program, so a document that does is refused.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import unquote
from xml.parsers import expat

from tools.extraction.output import MOST_CHARACTERS, OutOfTime, Refused, Sections, table_row
from tools.web.page_text import text_of

MOST_PARTS = 20_000
MOST_UNPACKED = 256 << 20  # bytes of all parts
_DEEPEST = 500  # elements in each other
_BLOCK = 65_536
_TEXTS = {
    **{"br": "\n", "cr": "\n", "line-break": "\n", "tab": "\t", "s": " ", "noBreakHyphen": "-"},
    **{"lastRenderedPageBreak": "\f", "soft-page-break": "\f"},
}
# What is not shown, or shown twice: an older form of the same drawing, deleted text, comments beside the text.
_UNSHOWN = {"Fallback", "moveFrom", "tracked-changes", "annotation", "note-citation", "tabs", "tabLst"}
_HEADING = re.compile(r"(?:heading|berschrift|titre|t[ií]tulo|titolo|kop|rubrik) ?(\d)", re.IGNORECASE)
_BESIDE = re.compile(r"word/(footnotes|endnotes|comments|header|footer)(\d*)\.xml")
_ROWS, _CELLS = {"tr", "table-row"}, {"tc", "table-cell"}
_HARD_BREAK = "\v"  # one that a person has made; the others are where the pages ended when it was saved

Attributes = Mapping[str, str]
Start = Callable[[str, Attributes], None]
Report = Callable[[str], None]


def _ignore(_: str) -> None:
    """Take no note of it."""


def _refuse_entity(*_: object) -> None:
    raise Refused("declares XML entities, which no document needs")


def _is_namespaced(name: str) -> bool:
    return " " in name


def _local(name: str) -> str:
    return name.rpartition(" ")[2]


class _Parts:
    """The parts of a document, unpacked as far as all of them together may be."""

    def __init__(self, data: bytes) -> None:
        if data.count(b"PK\x01\x02") > MOST_PARTS:
            raise Refused("has too many parts")
        self._archive = zipfile.ZipFile(io.BytesIO(data))
        self.names = self._archive.namelist()
        self._left = MOST_UNPACKED

    def blocks(self, name: str) -> Iterator[bytes]:
        with self._archive.open(name) as part:
            while block := part.read(_BLOCK):
                self._left -= len(block)
                if self._left < 0:
                    raise Refused("unpacks to more than can be read")
                yield block

    def walk(self, name: str, start: Start, end: Report = _ignore, text: Report = _ignore) -> None:
        """Report the elements and texts of a part by their local names. Raises Refused for what is no plain XML."""
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        # Of two attributes of one local name the one of a namespace counts: the id of a relation.
        parser.StartElementHandler = lambda element, given: start(
            _local(element), {_local(key): given[key] for key in sorted(given, key=_is_namespaced)} if given else given
        )
        parser.EndElementHandler = lambda element: end(_local(element))
        parser.CharacterDataHandler, parser.EntityDeclHandler = text, _refuse_entity
        try:
            for block in self.blocks(name):
                parser.Parse(block)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise Refused("is damaged: ask for another copy") from error

    def elements(self, name: str, wanted: str) -> list[Attributes]:
        """Return the attributes of all elements of this name in a part; none if there is no such part."""
        found: list[Attributes] = []
        if name in self.names:
            self.walk(name, lambda element, given: found.append(given) if element == wanted else None)
        return found

    def related(self, name: str) -> dict[str, Attributes]:
        """Return what a part refers to, by its id there; `Target` is a name in the archive."""
        folder, _, file = name.rpartition("/")
        rows = self.elements(f"{folder}/_rels/{file}.rels", "Relationship")
        return {
            row["Id"]: {**row, "Target": _path(folder, row["Target"])} for row in rows if {"Id", "Target"} <= row.keys()
        }


def _path(folder: str, target: str) -> str:
    return posixpath.normpath(posixpath.join("/", folder, unquote(target.partition("#")[0])))[1:]


class _Text:
    """Elements in, lines out. `everywhere`: characters count outside of `t` as well, as in OpenDocument."""

    def __init__(self, *, everywhere: bool = False, on_page: Callable[[str], None] | None = None) -> None:
        self._everywhere = everywhere
        self._on_page = on_page
        self._path: list[str] = []
        self._unshown = 0
        self._hidden_run = False
        self._prefix = ""
        self._outputs: list[list[str]] = [[]]  # the innermost table's cell last
        self._rows: list[list[str]] = []
        self._size = 0

    def start(self, name: str, given: Attributes) -> None:
        self._path.append(name)
        if len(self._path) > _DEEPEST:
            raise Refused("is nested too deeply")
        self._unshown += name in _UNSHOWN
        if self._unshown:
            return
        if name in ("p", "h"):
            level = given.get("outline-level", "")
            self._prefix = "#" * min(int(level), 6) + " " if name == "h" and level.isdecimal() else self._prefix
        elif name == "pStyle" and (heading := _HEADING.search(given.get("val", ""))):
            self._prefix = "#" * min(int(heading[1]), 6) + " "
        elif name in ("numPr", "list-item"):
            self._prefix = self._prefix or "- "
        elif name == "vanish" and self._path[-3:-1] == ["r", "rPr"]:
            self._hidden_run = given.get("val", "1") not in ("0", "false")
        elif name == "br" and given.get("type") == "page":
            self._put(_HARD_BREAK)
        elif name in _ROWS:
            self._rows.append([])
        elif name == "note" or (name in _CELLS and self._rows):
            self._outputs.append([])
        elif name == "page" and self._on_page:
            self._on_page(self.take())
        elif written := _TEXTS.get(name):
            self._put(written * min(int(given["c"]), 100) if given.get("c", "").isdecimal() else written)

    def end(self, name: str) -> None:
        self._path.pop()
        if self._unshown:
            self._unshown -= name in _UNSHOWN
        elif name == "r":
            self._hidden_run = False
        elif name in ("p", "h"):
            self._put("\n")
            self._prefix = ""
        elif name == "note" and len(self._outputs) > 1:
            self._put(f" [{self._cell()}]")
        elif name in _CELLS and len(self._outputs) > 1 and self._rows:
            cell = self._cell()
            self._rows[-1].append(cell)
        elif name in _ROWS and self._rows:
            self._put(f"{table_row(self._rows.pop())}\n")

    def text(self, text: str) -> None:
        if self._unshown or self._hidden_run:
            return
        if self._path[-1] == "t" or (self._everywhere and ("p" in self._path or "h" in self._path)):
            self._put(f"{self._prefix}{text}")
            self._prefix = ""

    def take(self) -> str:
        """Return the text so far, and begin anew."""
        text, self._outputs[0] = "".join(self._outputs[0]), []
        return text

    def _cell(self) -> str:
        return " ".join("".join(self._outputs.pop()).split())

    def _put(self, text: str) -> None:
        self._size += len(text)
        if self._size <= MOST_CHARACTERS + _BLOCK:  # more than is written
            self._outputs[-1].append(text)


def _text(parts: _Parts, name: str, reader: _Text) -> str:
    parts.walk(name, reader.start, reader.end, reader.text)
    return reader.take()


def _by_page(text: str) -> Sections:
    """Yield the pages as they were when the document was saved, or as a person has broken them."""
    at, other = ("\f", _HARD_BREAK) if "\f" in text else (_HARD_BREAK, "\f")
    found = text.replace(other, "").split(at)
    for number, page in enumerate(found, start=1):
        yield f"page {number}" if len(found) > 1 else "part 1", page


def _pages(parts: _Parts, name: str, reader: _Text) -> Sections:
    """Yield the pages of a part. Of one that cannot be read to its end, those before are not lost."""
    try:
        parts.walk(name, reader.start, reader.end, reader.text)
    except (Refused, OutOfTime):
        yield from _by_page(reader.take())
        raise
    yield from _by_page(reader.take())


def document(data: bytes, _: str) -> Sections:
    """Yield the pages of a DOCX, then its notes, and what stands above and below its pages."""
    parts = _Parts(data)
    yield from _pages(parts, "word/document.xml", _Text())
    for name in sorted(parts.names):
        beside = _BESIDE.fullmatch(name)
        if beside and (text := _text(parts, name, _Text()).strip()):
            yield beside[1] + (f" {beside[2]}" if beside[2] else ""), text


def slides(data: bytes, _: str) -> Sections:
    """Yield the slides of a PPTX in the order in which they are shown, each with its notes."""
    parts = _Parts(data)
    main = "ppt/presentation.xml"
    related = parts.related(main)
    ids = [row.get("id", "") for row in parts.elements(main, "sldId")]
    for number, slide in enumerate((related[one]["Target"] for one in ids if one in related), start=1):
        text = _text(parts, slide, _Text())
        for row in parts.related(slide).values():
            if row.get("Type", "").endswith("/notesSlide") and (notes := _text(parts, row["Target"], _Text()).strip()):
                text += f"\nNotes:\n{notes}"
        yield f"slide {number}", text


def open_document(data: bytes, _: str) -> Sections:
    """Yield the pages of an ODT, or the slides of an ODP."""
    parts = _Parts(data)
    if parts.elements("META-INF/manifest.xml", "encryption-data"):
        raise Refused("is encrypted: ask for a copy without a password")
    slides: list[str] = []  # what is before each, and so the first is of none
    reader = _Text(everywhere=True, on_page=slides.append)
    pages = [*_pages(parts, "content.xml", reader)]
    if slides:
        pages = [(f"slide {number}", text) for number, text in enumerate([*slides[1:], pages[-1][1]], start=1)]
    yield from pages


def book(data: bytes, _: str) -> Sections:
    """Yield the chapters of an EPUB in the order of reading."""
    parts = _Parts(data)
    package = next((row["full-path"] for row in parts.elements("META-INF/container.xml", "rootfile")), "")
    folder = posixpath.dirname(package)
    files = {row["id"]: _path(folder, row["href"]) for row in parts.elements(package, "item")}
    order = [files.get(row.get("idref", ""), "") for row in parts.elements(package, "itemref")]
    for number, name in enumerate((name for name in order if name in parts.names), start=1):
        page = text_of(b"".join(parts.blocks(name)), "application/xhtml+xml", "file:///", 60.0)
        yield f"chapter {number}", page.text
