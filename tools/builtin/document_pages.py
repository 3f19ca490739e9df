"""`read_file` for documents: a page of their text, and pictures of pages that have none."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from io import BufferedReader

from parsing import Arguments
from tools.base.outcome import Progress, Result, ToolFailed, shown_pictures
from tools.base.workspace import ReadFile
from tools.builtin.files import PAGE_CHARACTERS, read_file, too_far
from tools.extraction.documents import Extracted, UnreadableDocument, extracted, page_pictures
from tools.extraction.formats import HEAD, Format, format_of
from tools.sandbox.sandbox import NoSandbox, Sandbox
from tools.tool import Context

MOST_PICTURES = 4  # pages without text in one result
_PAGE_NOTES = 400  # characters of the lines that say what it is and how to go on


async def read_page(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
    """`read_file` with pages that fit into one result: a file with its middle left out is read wrongly."""
    page = min(PAGE_CHARACTERS, context.result_characters - _PAGE_NOTES)
    path: ReadFile = arguments["path"]
    with ExitStack() as stack:
        file = await asyncio.to_thread(stack.enter_context, path.opened())
        found = await asyncio.to_thread(_format, file, str(path))
        if found and not found.is_plain:  # what is edited as text is shown as it is
            try:
                text = await extracted(file, str(path), context.sandbox)
                yield await _page(text, file, arguments, page, context.sandbox)
                return
            except UnreadableDocument as error:
                if found.marks:  # else it is a text, too
                    raise ToolFailed(f"{path} {error}.") from error
    yield await asyncio.to_thread(read_file, arguments, page)


def _format(file: BufferedReader, name: str) -> Format | None:
    head = file.read(HEAD)
    tail = os.pread(file.fileno(), HEAD, max(0, os.fstat(file.fileno()).st_size - HEAD))
    return format_of(head, tail, name)


async def _page(
    found: Extracted, file: BufferedReader, arguments: Arguments, page: int, sandbox: Sandbox | NoSandbox
) -> Result:
    """Return one page of the text from line `offset`, below a line about the document."""
    path, offset = arguments["path"], int(arguments.get("offset", 1))
    if offset > (count := found.line_count):
        raise too_far(path, count)
    lines = await asyncio.to_thread(found.fitting, page, offset)
    numbers = [number for _, _, number in lines]
    pictures = [number for number in numbers if number]
    if further := pictures[MOST_PICTURES:]:
        lines, pictures = lines[: numbers.index(further[0])], pictures[:MOST_PICTURES]
    at = offset - 1 + len(lines)
    begins = "" if offset == 1 else f"; here from {lines[0][1]} on"
    left_out = f"; left out: {found.left_out}" if found.left_out else ""
    head = f"[{path}: {found.kind}, {found.count}, as text in {count:,} lines{begins}{left_out}]"
    foot = f"[Lines {offset} to {at}. Next page: offset={at + 1}]" if at < count else ""
    shown = await page_pictures(file, pictures, sandbox) if pictures else ()
    text = "\n".join(filter(None, [head, *(line for line, _, _ in lines), foot]))
    return Result(ok=True, text=text, pictures=shown_pictures(shown))
