"""Documents made to harm their reader: bombs, loops, lies. Made here, because most are large."""

from __future__ import annotations

import io
import random
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

DOCUMENTS = Path("fixtures/documents")


def archive(**parts: bytes | str) -> bytes:
    """A ZIP archive; `__` in a name is a slash, and `_0` a point."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
        for name, data in parts.items():
            made.writestr(name.replace("__", "/").replace("_0", "."), data)
    return out.getvalue()


def docx(body: str | bytes, before: str = "") -> bytes:
    whole = f"<?xml version='1.0'?>{before}<w:document xmlns:w='urn:w'><w:body>".encode()
    whole += (body.encode() if isinstance(body, str) else body) + b"</w:body></w:document>"
    return archive(word__document_0xml=whole)


def paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def with_parts(name: str, **parts: bytes | str) -> bytes:
    """A real document with other parts."""
    changed = {one.replace("__", "/").replace("_0", "."): data for one, data in parts.items()}
    out = io.BytesIO()
    with (
        zipfile.ZipFile(DOCUMENTS / name) as real,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made,
    ):
        for one in real.infolist():
            made.writestr(one, changed.get(one.filename, real.read(one)))
    return out.getvalue()


def xlsx(cells: str, **parts: bytes) -> bytes:
    return with_parts("budget.xlsx", xl__worksheets__sheet1_0xml=cells, **parts)


def sheet(*cells: tuple[str, str], dimension: str = "A1") -> str:
    rows = "".join(f'<row r="{at[at.index("1") :]}"><c r="{at}"><v>{value}</v></c></row>' for at, value in cells)
    return f'<worksheet xmlns="urn:s"><dimension ref="{dimension}"/><sheetData>{rows}</sheetData></worksheet>'


def odf(name: str, content: str, **parts: str) -> bytes:
    names = (
        "".join(
            f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "text", "table")
        )
        + ' xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"'
    )
    body = f"<office:document-content{names}><office:body>{content}</office:body></office:document-content>"
    return with_parts(name, content_0xml=body, **parts)


def pdf(*objects: str, root: str = "1 0 R") -> bytes:
    """A PDF without a table of its objects: readers look for them."""
    made = "".join(f"{number} 0 obj {body} endobj\n" for number, body in enumerate(objects, start=1))
    return f"%PDF-1.7\n{made}trailer << /Root {root} >>\n%%EOF\n".encode("latin-1")


def many_pages(count: int) -> bytes:
    kids = " ".join(["3 0 R"] * count)
    return pdf(
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {count} /Kids [{kids}] >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>",
    )


def flate_bomb() -> bytes:
    """Content that unpacks twice, to 200 MB."""
    inner = zlib.compress(b"q Q " * 50_000_000, 1)
    stream = zlib.compress(inner).decode("latin-1")
    filters = f"/Filter [/FlateDecode /FlateDecode] /Length {len(stream)}"
    page = "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>"
    pages = "<< /Type /Pages /Count 1 /Kids [3 0 R] >>"
    return pdf("<< /Type /Catalog /Pages 2 0 R >>", pages, page, f"<< {filters} >> stream\n{stream}\nendstream")


def nested_mail(depth: int) -> bytes:
    head = b"From: a@example.org\nDate: x\nMIME-Version: 1.0\n"
    parts = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (at, at) for at in range(depth))
    return head + parts + b"Content-Type: text/plain\n\ndeep"


def lying_size(data: bytes) -> bytes:
    """The archive with sizes of its parts that are none."""
    at = data.rindex(b"PK\x01\x02")
    return data[: at + 20] + b"\xff\xff\xff\x7f\x01\0\0\0" + data[at + 28 :]


def read(name: str) -> bytes:
    return (DOCUMENTS / name).read_bytes()


def repeated(element: str, **counts: int) -> str:
    rows = f'table:number-rows-repeated="{counts["rows"]}"'
    columns = f'table:number-columns-repeated="{counts["columns"]}"'
    cell = f'<table:table-cell {columns} office:value-type="string"><text:p>{element}</text:p></table:table-cell>'
    table = f'<table:table table:name="T"><table:table-row {rows}>{cell}</table:table-row></table:table>'
    return f"<office:spreadsheet>{table}</office:spreadsheet>"


LAUGHS = "<!DOCTYPE d [<!ENTITY a 'ha'>" + "".join(
    f"<!ENTITY {chr(98 + at)} '{f'&{chr(97 + at)};' * 10}'>" for at in range(9)
)
ENTITY = '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
BLOCK = b"<w:p><w:r><w:t>" + b" " * 1000 + b"</w:t></w:r></w:p>"

_ROOT = "<< /Type /Catalog /Pages 2 0 R >>"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_CYCLE = "<< /Type /Pages /Count 9 /Kids [2 0 R 2 0 R] /Parent 2 0 R >>"
_SLIDE = "<draw:page><text:p>x</text:p></draw:page>"
_ENCRYPTED = {"META-INF__manifest_0xml": "<m><encryption-data/></m>"}

FIVE = sheet(("A1", "5"))
MANY = dict.fromkeys(map(str, range(20_001)), "")

# Name of the file, what makes it, and what has to occur in its text or in the sentence that refuses it.
HOSTILE: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "an archive bomb": ("a.docx", lambda: docx(BLOCK * 300_000), "the rest"),
    "a bomb behind text": ("a.docx", lambda: docx(paragraph("before it").encode() + BLOCK * 300_000), "before it"),
    "an archive in itself": ("a.docx", lambda: docx(read("memo.docx")), "damaged"),
    "entities that grow": ("a.docx", lambda: docx(paragraph("&i;"), f"{LAUGHS}]>"), "entities"),
    "an entity that reads a file": ("a.docx", lambda: docx(paragraph("&x;"), ENTITY), "entities"),
    "deep nesting": ("a.docx", lambda: docx("<w:p>" * 100_000), "deeply"),
    "many parts": ("a.docx", lambda: archive(word__document_0xml="", **MANY), "parts"),
    "sizes that lie": ("a.docx", lambda: lying_size(docx(paragraph("small"))), ""),
    "a bomb of shared strings": ("a.xlsx", lambda: xlsx(FIVE, xl__sharedStrings_0xml=b"<si/>" * 50_000_000), ""),
    "two distant cells": ("a.xlsx", lambda: xlsx(sheet(("A1", "5"), ("XFD1048576", "6"))), ""),
    "a size that lies": ("a.xlsx", lambda: xlsx(sheet(("A1", "5"), dimension="A1:XFD1048576")), "| 5 |"),
    "repeated cells": ("a.ods", lambda: odf("stock.ods", repeated("x", rows=10**6, columns=16_000)), ""),
    "an encrypted letter": ("a.odt", lambda: odf("letter.odt", "", **_ENCRYPTED), "encrypted"),
    "many slides": ("a.odp", lambda: odf("deck.odp", _SLIDE * 100_000), "[slide 5000]"),
    "pages that are their own parent": ("a.pdf", lambda: pdf(_ROOT, _CYCLE), ""),
    "a stream with the length of itself": ("a.pdf", lambda: pdf(_ROOT, "<< /Length 2 0 R >> stream\nx\nendstream"), ""),
    "100,000 pages": ("a.pdf", lambda: many_pages(100_000), "everything from page 5001 on"),
    "content that unpacks twice": ("a.pdf", flate_bomb, ""),
    "no PDF behind its header": ("a.pdf", lambda: b"%PDF-1.7\n" + random.Random(1).randbytes(100_000), "damaged"),
    "a PDF that is an archive": ("a.pdf", lambda: b"%PDF-1.7\n" + read("memo.docx"), "damaged"),
    "an archive that is a PDF": ("a.docx", lambda: read("report.pdf"), "Revenue grew"),
    "a document under another name": ("a.csv", lambda: read("memo.docx"), "crane"),
    "an encrypted document": ("a.docx", lambda: _OLE + "EncryptedPackage".encode("utf-16-le"), "is encrypted"),
    "an old document": ("a.doc", lambda: _OLE + "WordDocument".encode("utf-16-le"), "before 2007"),
    "a book without an end": ("a.epub", lambda: book(4_000), ""),
    "a mail in a mail": ("a.eml", lambda: nested_mail(5_000), ""),
    "a page of tags": ("a.html", lambda: b"<html>" + b"<div><p>" * 2_000_000, ""),
    "a line of 20 MB": ("a.csv", lambda: b"a," * 10_000_000, "the end"),
    "more than is read": ("a.csv", lambda: b"a\n" * (33 << 20), "larger than 64 MB"),
}  # fmt: skip


def book(chapters: int) -> bytes:
    """A book that has one long chapter many times."""
    items = '<item id="c" href="c.xhtml"/>'
    spine = '<itemref idref="c"/>' * chapters
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("mimetype", "application/epub+zip")
        made.writestr("META-INF/container.xml", '<c><rootfile full-path="o.opf"/></c>')
        made.writestr("o.opf", f"<p>{items}{spine}</p>")
        made.writestr("c.xhtml", "<html>" + "<p>word</p>" * 50_000 + "</html>", zipfile.ZIP_DEFLATED)
    return out.getvalue()


def cut(name: str) -> Iterator[bytes]:
    """A document that ends after each tenth of its bytes."""
    data = read(name)
    yield from (data[: len(data) * tenths // 10] for tenths in range(1, 10))
