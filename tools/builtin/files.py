"""The tools `read_file`, `write_file` and `edit_file`."""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from parsing import Arguments
from tools.base.diffs import unified_diff
from tools.base.outcome import MOST_BYTES, Result, ToolFailed, is_picture
from tools.base.replacement import replace_once
from tools.base.texts import encoded
from tools.base.workspace import ReadFile, WrittenFile
from tools.tool import Context, Run, answering

PAGE_CHARACTERS = 20_000
EDIT_BYTES = 5 * 1024 * 1024
SKIPPED_BYTES = 256 * 1024 * 1024

_BLOCK = 65_536
_PROBE = 8_192


def off_the_loop(answer: Callable[[Arguments], str]) -> Run:
    """A `run` for a function that blocks: files may lie on a slow disk."""

    async def run(arguments: Arguments, _: Context) -> str:
        return await asyncio.to_thread(answer, arguments)

    return answering(run)


def read_file(arguments: Arguments, page: int = PAGE_CHARACTERS) -> Result:
    """A picture that is not too large to be shown, or a page of a text."""
    path: ReadFile = arguments["path"]
    with path.opened() as file:
        size, beginning = os.fstat(file.fileno()).st_size, file.read(_PROBE)
        if size <= MOST_BYTES and is_picture(beginning):
            file.seek(0)
            picture = file.read(MOST_BYTES)
            words = f"{path} is a picture of {len(picture):,} bytes; it follows for those who can see it."
            return Result(ok=True, text=words, pictures=(picture,))
        if b"\0" in beginning:
            raise ToolFailed(f"{path} is a binary file of {size:,} bytes, not text", ": look at it with python.")
        return Result(ok=True, text=_read_lines(file, path, int(arguments.get("offset", 1)), page))


def _read_lines(file: BinaryIO, path: ReadFile, offset: int, page: int) -> str:
    """One page of a text file from line `offset` (from 1), and how to get the next."""
    file.seek(_start_of_line(file.fileno(), offset, path))
    # The longest character has four bytes; one character more shows whether there is a next page.
    raw = file.read(4 * page + 4)
    text = codecs.getincrementaldecoder("utf-8")(errors="replace").decode(raw, final=len(raw) <= 4 * page)
    if not text:
        if offset > 1:
            raise too_far(path, offset - 1)
        return "(empty file)"
    return text if len(text) <= page else _page(text, offset, page)


def _page(text: str, offset: int, page: int) -> str:
    end = text.rfind("\n", 0, page) + 1
    if not end:
        return (
            f"{text[:page]}\n[Only the first {page:,} characters of line {offset}, which is "
            f"longer: see more of it with python. Next page, when there is one: offset={offset + 1}]"
        )
    following = offset + text.count("\n", 0, end)
    return f"{text[:end]}[Lines {offset} to {following - 1}. Next page: offset={following}]"


def _start_of_line(opened: int, line: int, path: ReadFile) -> int:
    """The position where `line` begins, found block by block in bounded memory."""
    position, missing = 0, line - 1
    ends_with_newline = True
    while missing > 0:
        if position >= SKIPPED_BYTES:
            # A thread cannot be cancelled, and a sparse file of terabytes costs nothing to make.
            within = f"its first {SKIPPED_BYTES:,} bytes"
            raise ToolFailed(f"Line {line} of {path} is not in {within}", ": print it with python.")
        block = os.pread(opened, _BLOCK, position)
        if not block:
            raise too_far(path, line - 1 - missing + (not ends_with_newline))
        newlines = block.count(b"\n")
        if newlines >= missing:
            return position + _after_newline(block, missing)
        missing -= newlines
        position += len(block)
        ends_with_newline = block.endswith(b"\n")
    return position


def too_far(path: ReadFile, lines: int) -> ToolFailed:
    return ToolFailed(f"{path} has only {lines} lines", f": give an offset from 1 to {max(lines, 1)}.")


def _after_newline(block: bytes, count: int) -> int:
    at = 0
    for _ in range(count):
        at = block.index(b"\n", at) + 1
    return at


def state_of_file(arguments: Arguments, workspace: Path) -> str:
    """Return the state that an approval of a write is bound to: the file's digest, or that it does not exist."""
    try:
        with ReadFile(workspace, arguments["path"]).opened() as file:
            found = os.fstat(file.fileno())
            if found.st_size > SKIPPED_BYTES:  # a sparse file of terabytes costs nothing to make
                return f"{found.st_size} bytes at {found.st_mtime_ns}"
            return hashlib.file_digest(file, "sha256").hexdigest()
    except ToolFailed as error:
        return "absent" if isinstance(error.__cause__, FileNotFoundError) else f"out of reach: {error}"


def write_file(arguments: Arguments) -> str:
    """Create or replace a file; the answer is a diff."""
    path: WrittenFile = arguments["path"]
    written, before = encoded(arguments["content"]), _old(path)
    path.write(written)
    shown = "/".join(path.parts)
    if before and len(before) > EDIT_BYTES:
        diff = f"[{shown}: was longer than {EDIT_BYTES:,} bytes, too long to compare]"
    else:
        diff = unified_diff(shown, (before or b"").decode(errors="replace"), arguments["content"])
    return f"{'Created' if before is None else 'Wrote'} {path} ({len(written):,} bytes).\n{diff}"


def _old(path: WrittenFile) -> bytes | None:
    """Read the file that will be replaced, up to one byte beyond the limit; None when there is none."""
    try:
        with path.opened() as file:
            return file.read(EDIT_BYTES + 1)
    except ToolFailed as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def edit_file(arguments: Arguments) -> str:
    """Replace `old`, which must be there exactly once, by `new`; the answer is a diff."""
    path: WrittenFile = arguments["path"]
    old, new, otherwise = arguments["old"], arguments["new"], "make the whole file with write_file"
    before = _editable(path)
    after = replace_once(before, old, new, str(path), otherwise).text
    path.write(encoded(after))
    return f"Edited {path}.\n{unified_diff('/'.join(path.parts), before, after)}"


def _editable(path: WrittenFile) -> str:
    with path.opened() as file:
        raw = file.read(EDIT_BYTES + 1)
    if len(raw) > EDIT_BYTES:
        raise ToolFailed(f"{path} is longer than {EDIT_BYTES:,} bytes", ": edit it with python.")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ToolFailed(f"{path} is not UTF-8 text (byte {error.start})", ": edit it with python.") from error
