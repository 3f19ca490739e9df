"""Opening a file of a workspace to send it: never a link, nothing that is private."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from app.workspace.content_types import HEAD, is_text, media_type_of
from app.workspace.private_files import private_reason
from tools.base.outcome import ToolFailed
from tools.base.workspace import inside, regular_file


class NotSent(Exception):
    """The file is private. The message says why."""


class OpenFile(Struct, frozen=True):
    """A regular file, open for reading: close `handle`. `tag` is another one after each write."""

    handle: int
    name: str
    size: int
    tag: str
    media_type: str
    is_text: bool


def open_file(workspace: Path, path: str) -> OpenFile:
    """Open it. Blocks. Raises NotSent, and ToolFailed for what is no regular file in the workspace."""
    parts = inside(workspace, path.lstrip("/"))
    if reason := private_reason(parts):
        raise NotSent(f"{'/'.join(parts)} is not sent: {reason}.")
    with regular_file(workspace, parts) as opened:
        status = os.fstat(opened)
        head = os.pread(opened, HEAD, 0)
        whole = status.st_size <= HEAD
        tag = f"{status.st_size:x}-{status.st_mtime_ns:x}-{status.st_ino:x}"
        media_type = media_type_of(head, parts[-1], whole=whole)
        return OpenFile(
            os.dup(opened),
            name=parts[-1],
            size=status.st_size,
            tag=tag,
            media_type=media_type,
            is_text=is_text(head, whole=whole),
        )


def size_now(workspace: Path, path: str) -> int | None:
    """Return the size of a file that `open_file` would open; None where it would not. Blocks."""
    try:
        parts = inside(workspace, path)
        if private_reason(parts):
            return None
        with regular_file(workspace, parts) as opened:
            return os.fstat(opened).st_size
    except ToolFailed:
        return None
