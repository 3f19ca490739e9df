"""Text of documents that other programs have made, and sentences about those that are made to do harm."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.documents.hostile import DOCUMENTS, HOSTILE, cut, docx, odf, paragraph, repeated
from tools.base.outcome import Result, ToolFailed
from tools.catalogue import TOOLS
from tools.extraction import documents
from tools.extraction.documents import Extracted, UnreadableDocument, extracted
from tools.process.command_output import output_of
from tools.sandbox.closed_box import closed_box
from tools.sandbox.sandbox import Bubblewrap, Landlock, NoSandbox, find_sandbox
from tools.tool import Context, ToolList

pytestmark = pytest.mark.anyio
LONGEST_S = 60.0  # of one document, on a machine that does much else
BOX = find_sandbox()

# What made each, what it is, and what has to occur in its text.
REAL: dict[str, tuple[str, ...]] = {
    # LibreOffice
    "report.docx": ("DOCX, 2 pages", "# Quarterly report", "| North | 1200 |", "[page 2]\n## Outlook"),
    "report.odt": ("ODT, 1 part", "# Quarterly report", "| South | 830 |", "- first point"),
    "report.pdf": ("PDF, 2 pages", "12 percent in Zürich", "South 830", "[page 2]\nOutlook"),
    "report.epub": ("EPUB, 1 chapter", "Revenue grew by 12 percent"),
    "budget.xlsx": ("XLSX, 1 sheet", "[sheet budget]", "| South | 830.5 | 2026-02-07 |"),
    "budget.ods": ("ODS, 1 sheet", "| South | 830.5 | 2026-02-07 |"),
    "budget.xls": ("XLS, 1 sheet", "| South | 830.5 | 2026-02-07 |"),
    "budget.pdf": ("PDF, 1 page", "South 830.5 2026-02-07"),
    "deck.odp": ("ODP, 2 slides", "[slide 2]\nComets of the year"),
    "deck.pptx": ("PPTX, 2 slides", "[slide 1]\nWelcome to the observatory"),
    "deck.pdf": ("PDF, 2 pages", "[page 2]\nComets of the year"),
    # pandoc, and what Chromium and Ghostscript print
    "otters.docx": ("DOCX, 1 part", "# Habits", "| River | 9 |", "x2+1", "- crabs", "[footnotes]\nSeen in Monterey."),
    "otters.odt": ("ODT, 1 part", "hands [Seen in Monterey.]. They float.", "| River | 9 |"),
    "otters.epub": ("EPUB, 3 chapters", "[chapter 3]\n# Food", "River | 9"),
    "otters.pptx": ("PPTX, 5 slides", "[slide 4]\nFood", "| Sea | 30 |"),
    "browser.pdf": ("PDF, 1 page", "Otters sleep holding hands", "River 9"),
    "ghostscript.pdf": ("PDF, 2 pages", "The plan for kestrel holds."),
    # python-docx, openpyxl, XlsxWriter, python-pptx, odfpy, EbookLib
    "memo.docx": ("DOCX, 2 pages", "| 7 | Aurora | 1850 |", "[page 2]\nSecond page", "ref H-2231", "l footer"),
    "languages.docx": ("DOCX, 1 part", "会議の記録", "Следующая встреча", "الاجتماع القادم"),
    "long.docx": ("DOCX, 1 part", "The last words are zanzibar."),
    "orders.xlsx": ("XLSX, 3 sheets", "| A-18 | 2026-03-05 14:30:00 | FALSE | 99 |", "[sheet Costs (hidden)]"),
    "sales.xlsx": ("XLSX, 1 sheet", "| Month | Units |  | merged title |", "|  | 660 |"),
    "wide.xlsx": ("XLSX, 1 sheet", "| r299c0 |", "far away cell"),
    "pitch.pptx": ("PPTX, 2 slides", "Notes:\nMention the subsidy", "| Lens | 9100 |"),
    "reordered.pptx": ("PPTX, 3 slides", "[slide 1]\ngamma\n[slide 2]\nalpha"),
    "letter.odt": ("ODT, 1 part", "## Letter from the mill", "Flour costs 3.20"),
    "stock.ods": ("ODS, 1 sheet", "[sheet Stock]", "| sacks | 412 |"),
    "ferry.epub": ("EPUB, 3 chapters", "[chapter 3]\n# Chapter 2", "Nobody saw the captain"),
    # ReportLab, fpdf2, Matplotlib, qpdf, PDFium
    "invoice.pdf": ("PDF, 2 pages", "Anchor 1 310.50", "[page 2]\nTerms: thirty days net"),
    "form.pdf": ("PDF, 1 page", "Filled-in Fridolin"),
    "thirty-pages.pdf": ("PDF, 30 pages", "[page 30]\nSection 30"),
    "receipt.pdf": ("PDF, 1 page", "Receipt for 3 lanterns"),
    "plot.pdf": ("PDF, 1 page", "Tide heights"),
    "object-streams.pdf": ("PDF, 2 pages", "Total 358.50 EUR"),
    "owner-locked.pdf": ("PDF, 2 pages", "Total 358.50 EUR"),
    "scan.pdf": ("PDF, 6 pages", "[page 6]\n(a picture)"),
    # By hand and by Python
    "street.eml": ("EML, 1 part", "Subject: Straße gesperrt", "Die Straße ist bis Freitag gesperrt."),
    "order.eml": ("EML, 1 part", "Your order 5512 has shipped.", "- receipt.pdf, application/pdf, 300 bytes"),
    "cities.csv": ("CSV, 1 part", "München;1512000"),
    "utf16.tsv": ("CSV, 1 part", "Äpfel\t12"),
    "plain.csv": ("CSV, 1 part", 'line"\n2,zebra'),
    "page.html": ("HTML, 1 part", "# Opening hours", "Open from nine to five.", "Monday | closed"),
    "latin1.htm": ("HTML, 1 part", "Crème brûlée à la carte"),
}  # fmt: skip
UNSEEN = ("INVISIBLE ORDER", "OFFPAGE ORDER", "HIDDEN ORDER", "NOT SHOWN")  # what a reader of the document does not see


def written(found: Extracted) -> str:
    return "\n".join((f"{found.kind}, {found.count}", *(line for line, _, _ in found.lines()), found.left_out))


async def text_or_sentence(data: bytes, name: str) -> str:
    started = time.monotonic()
    try:
        return written(await extracted(data, name, BOX, time_limit_s=2))
    except UnreadableDocument as refused:
        return str(refused)
    finally:
        assert time.monotonic() - started < LONGEST_S


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
async def test_real_documents_are_text(level: str) -> None:
    box = find_sandbox(levels=[level])
    if isinstance(box, NoSandbox):
        pytest.skip(box.reason)
    assert {path.name for path in DOCUMENTS.iterdir()} == {*REAL, "README.md"}
    names = [*REAL] if level == "bubblewrap" else [*REAL][::6]
    documents._kept.clear()

    async def check(name: str) -> None:
        with (DOCUMENTS / name).open("rb") as file:
            text = written(await extracted(file, name, box))
        kind, *wanted = REAL[name]
        assert text.startswith(kind + "\n"), (name, text[:80])
        assert [one for one in wanted if one not in text] == [], (name, text)
        assert not any(one in text for one in UNSEEN), name

    await asyncio.gather(*map(check, names))


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_documents_are_a_text_or_a_sentence(name: str) -> None:
    file, make, wanted = HOSTILE[name]
    data, before = make(), psutil.Process().memory_info().rss
    assert wanted in await text_or_sentence(data, file)
    assert psutil.Process().memory_info().rss - before < 200 << 20  # of up to 40 MB that are written


@pytest.mark.parametrize("name", ["memo.docx", "report.pdf", "orders.xlsx", "otters.odt", "otters.epub"])
async def test_documents_that_are_cut(name: str) -> None:
    found = await asyncio.gather(*(text_or_sentence(data, name) for data in cut(name)))
    assert all(found), found


async def test_a_document_is_read_once_and_only_in_a_box() -> None:
    data = (DOCUMENTS / "receipt.pdf").read_bytes()
    found = await extracted(data, "receipt.pdf", BOX)
    assert await extracted(data, "receipt.pdf", NoSandbox("none")) is found
    documents._kept.clear()
    with pytest.raises(UnreadableDocument, match=r"needs a sandbox.*install bubblewrap"):
        await extracted(data, "receipt.pdf", find_sandbox(unsafe=True))


def test_the_server_does_not_import_the_libraries() -> None:
    listed = "import routes.cli.main, routes.server, tools.catalogue, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True).stdout.split()
    assert "tools.extraction.documents" in loaded
    assert {"pypdfium2", "python_calamine", "tools.extraction.reader", "tools.extraction.pdf"}.isdisjoint(loaded)


REACH = """
import json, os, socket, sys
def tried(action):
    try:
        action()
        return True
    except OSError:
        return False
where = sys.argv[1]
found = {
    "the workspace": tried(lambda: os.listdir(where)),
    "accounts": tried(lambda: open("/etc/shadow").read()),
    "a file": any([tried(lambda: open(f"{place}/x", "w").write("x" * 100)) for place in (where, "/", "/usr")]),
    "the network": tried(lambda: socket.create_connection(("127.0.0.1", int(sys.argv[2])), 2)),
    "secrets": "DRAGOMAN_SECRET" in os.environ,
    "its input": sys.stdin.read() == "document",
}
print(json.dumps(found))
"""


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
async def test_the_reader_reaches_nothing(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = find_sandbox(levels=[level])
    if not isinstance(box, Bubblewrap | Landlock):
        pytest.skip(box.reason if isinstance(box, NoSandbox) else level)
    monkeypatch.setenv("DRAGOMAN_SECRET", "x")
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryFile() as spare:
        command = closed_box(box, REACH, [str(tmp_path), str(server.getsockname()[1])], (), spare.fileno())
        output = await output_of(command.argv, b"document", command.env, 10_000, limits=command.limits, fds=command.fds)
    assert {name for name, reached in json.loads(output).items() if reached} == {"its input"}


async def read(workspace: Path, name: str, offset: int = 1, *, boxed: bool = True) -> str:
    tool = ToolList(TOOLS).by_name["read_file"]
    context = Context(workspace, sandbox=BOX if boxed else NoSandbox("none"), result_characters=4_000)
    arguments = tool.with_paths({"path": name, "offset": offset}, workspace)
    async with aclosing(tool.run(arguments, context)) as results:
        return "".join([result.text async for result in results if isinstance(result, Result)])


SLEEPER = """
import time
from tools.extraction import reader
def sections(*_):
    yield "part 1", "kept"
    time.sleep(60)
reader._function = lambda _: sections
reader._bound(1)
reader._read(reader.BY_KIND["CSV"], b"", "")
"""


def test_what_was_read_is_kept_where_others_take_the_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLEEPER], capture_output=True, text=True, check=True, timeout=LONGEST_S
    )
    assert '"kept"' in done.stdout and "took too long" in done.stdout


TEXTS = {
    "notes.md": "A PDF begins with %PDF-1.7.\n",
    "0001-tabs.patch": f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: A <a@b.org>\nDate: Mon\n\n-\t1;  \n",
}


@pytest.mark.parametrize("name", TEXTS)
async def test_a_text_that_looks_like_a_document_is_shown_as_it_is(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(TEXTS[name])
    assert await read(tmp_path, name) == TEXTS[name]


async def test_a_document_that_changes_while_it_is_read_is_kept_as_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = tmp_path / "a.docx", (DOCUMENTS / "report.docx").read_bytes()
    path.write_bytes(data)
    lines = documents._lines

    async def changing(*given: Any) -> Any:
        path.write_bytes((DOCUMENTS / "memo.docx").read_bytes())
        return await lines(*given)

    documents._kept.clear()
    with monkeypatch.context() as patched:
        patched.setattr(documents, "_lines", changing)
        await read(tmp_path, path.name)
    assert "Quarterly report" in written(await extracted(data, path.name, BOX))


async def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "a.pdf").open("wb") as file:
        file.write(b"%PDF-1.7\n")
        file.truncate(1 << 40)
    with pytest.raises(ToolFailed, match="larger than 64 MB"):
        await asyncio.wait_for(read(tmp_path, "a.pdf"), LONGEST_S)


async def test_lines_and_marks_have_a_bounded_length() -> None:
    found = await extracted(docx(paragraph("word " * 1_000 + "x" * 3_000).encode()), "a.docx", BOX)
    lines = [line for line, _, _ in found.lines()]
    assert len(lines) == found.line_count and max(map(len, lines)) == 1_000
    assert " ".join(lines).count("word") == 1_000 and "".join(lines).count("x") == 3_000
    table = repeated("x", rows=1, columns=1).replace('"T"', f'"{"T" * 1_000_000}"')
    [sheet] = (await extracted(odf("stock.ods", table), "a.ods", BOX)).sections
    assert sheet.text == "| x |" and len(sheet.mark) == 200


async def test_read_file_pages_documents_and_leaves_texts_as_they_are(tmp_path: Path) -> None:
    for name in ("thirty-pages.pdf", "page.html", "order.eml", "receipt.pdf"):
        (tmp_path / name).write_bytes((DOCUMENTS / name).read_bytes())

    page = partial(read, tmp_path)
    body, offset = list[str](), 1
    while True:
        text = await page("thirty-pages.pdf", offset)
        head, _, shown = text.partition("\n")
        assert head.startswith("[thirty-pages.pdf: PDF, 30 pages, as text in ") and len(text) <= 4_000
        lines, more, following = shown.rpartition("[Lines ")
        body += (lines or shown).splitlines()
        if not more:
            break
        offset = int(following.partition("offset=")[2].rstrip("]"))
    whole = await extracted((DOCUMENTS / "thirty-pages.pdf").read_bytes(), "thirty-pages.pdf", BOX)
    assert body == [line for line, _, _ in whole.lines()]
    with pytest.raises(ToolFailed, match="has only"):
        await page("receipt.pdf", 1_000)
    assert (await page("page.html")).startswith("<!doctype html>"), "edit_file works on that"
    documents._kept.clear()
    assert "Content-Type: multipart/mixed" in await page("order.eml", boxed=False)
    with pytest.raises(ToolFailed, match="needs a sandbox"):
        await page("receipt.pdf", boxed=False)
