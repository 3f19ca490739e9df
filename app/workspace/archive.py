"""A folder of a workspace as a ZIP archive, made while it is sent: without links, and without what is not sent."""

from __future__ import annotations

import os
import stat
import time
import zipfile
from collections.abc import Generator
from pathlib import Path
from typing import IO, cast

from msgspec import Struct

from app.workspace.private_files import private_reason
from app.workspace.skipped import HEAVY
from tools.base.outcome import ToolFailed
from tools.base.workspace import directory, inside, regular_file

MOST_FILES = 20_000
MOST_BYTES = 2 << 30
BLOCK = 1 << 20
FIRST_YEAR = 1980  # of a date in an archive


class TooLarge(Exception):
    """The folder is too large for an archive. The message says by how much."""


class Archive(Struct, frozen=True):
    """The files of a folder, by their path in it."""

    workspace: Path
    parts: tuple[str, ...]
    files: list[tuple[str, ...]]

    @property
    def name(self) -> str:
        return f"{self.parts[-1] if self.parts else 'workspace'}.zip"


def archive_of(workspace: Path, path: str) -> Archive:
    """Look through a folder. Blocks. Raises ToolFailed, TooLarge."""
    parts = inside(workspace, path.lstrip("/"))
    files = list[tuple[str, ...]]()
    size = 0
    waiting = [parts]
    while waiting:
        at = waiting.pop()
        try:
            with directory(workspace, at) as opened, os.scandir(opened) as items:
                for item in sorted(items, key=lambda one: one.name):
                    where = (*at, item.name)
                    if private_reason(where):
                        continue
                    if item.is_dir(follow_symlinks=False) and item.name not in HEAVY:
                        waiting.append(where)
                    elif item.is_file(follow_symlinks=False):
                        files.append(where)
                        size += item.stat(follow_symlinks=False).st_size
                    if len(files) > MOST_FILES or size > MOST_BYTES:
                        raise TooLarge(
                            f"The folder holds more than {MOST_FILES:,} files or {MOST_BYTES >> 20:,} MB, too much "
                            "for one archive. Take its folders one by one."
                        )
        except ToolFailed:
            if at == parts:
                raise
    return Archive(workspace, parts, files)


class _Sink:
    """Bytes of the archive that wait to be taken. It cannot be wound back, which `zipfile` copes with."""

    def __init__(self) -> None:
        self.waiting = bytearray()

    def write(self, data: bytes) -> int:
        self.waiting += data
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def take(self) -> bytes:
        taken = bytes(self.waiting)
        self.waiting.clear()
        return taken


def blocks_of(archive: Archive) -> Generator[bytes, None, None]:
    """The bytes of the archive. Blocks between two of them; files that went in the meantime are left out."""
    sink = _Sink()
    with zipfile.ZipFile(cast("IO[bytes]", sink), "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for parts in archive.files:
            try:
                with regular_file(archive.workspace, parts) as opened:
                    yield from _packed(packed, sink, opened, "/".join(parts[len(archive.parts) :]))
            except ToolFailed:
                continue
    yield sink.take()


def _packed(packed: zipfile.ZipFile, sink: _Sink, opened: int, name: str) -> Generator[bytes, None, None]:
    found = os.fstat(opened)
    changed = time.localtime(found.st_mtime)
    date = changed[:6] if changed.tm_year >= FIRST_YEAR else (FIRST_YEAR, 1, 1, 0, 0, 0)
    entry = zipfile.ZipInfo(os.fsencode(name).decode(errors="replace"), date)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = stat.S_IMODE(found.st_mode) << 16
    left = min(found.st_size, MOST_BYTES)
    with packed.open(entry, "w", force_zip64=left > zipfile.ZIP64_LIMIT // 2) as file:
        while left > 0 and (block := os.read(opened, min(BLOCK, left))):
            left -= len(block)
            file.write(block)
            if len(sink.waiting) >= BLOCK:
                yield sink.take()
