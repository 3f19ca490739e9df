"""Reporting what a call has changed in the workspace: compared before and after it, reported as events.

A command does not report its writes, so the files are compared. What another program, or another run of the
same person, changes in that time is reported as well; what a background job writes later is not.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, field

from app.core.events import FileChanged, Notice
from app.workspace.content_types import HEAD, media_type_of
from app.workspace.scan import FileChange, Scan, differences, scan
from tools.base.outcome import ToolFailed
from tools.base.workspace import inside, regular_file
from tools.tool import Tool

MOST_EVENTS = 32  # of a call
MOST_HASHED = 32 << 20  # bytes of a file: of a larger one no digest is made
MOST_HASHED_OF_CALL = 128 << 20
_BLOCK = 1 << 20
MORE = "{count:,} more files were created, modified or deleted by this call."
TOO_LARGE = (
    "The workspace has more files than are compared, so that changes in its lower folders are not reported as such."
)


class WorkspaceChanges(Struct):
    """The changes of one run's calls. Entries `without` in the root of the workspace belong to others."""

    workspace: Path | None = None
    without: frozenset[str] = frozenset()
    _warned: bool = field(default=False)

    async def before(self, tool: Tool | None) -> Scan | None:
        """Look at the workspace before a call; None if its tool does not write there."""
        if self.workspace is None or tool is None or not tool.may_write:
            return None
        return await asyncio.to_thread(scan, self.workspace, self.without)

    async def since(self, before: Scan | None, call: str) -> Sequence[FileChanged | Notice]:
        """The events for what has changed since then."""
        if before is None or self.workspace is None:
            return ()
        events, whole = await asyncio.to_thread(self._compared, self.workspace, before, call)
        if not whole and not self._warned:
            self._warned = True
            events.append(Notice("files", TOO_LARGE))
        return events

    def _compared(self, workspace: Path, before: Scan, call: str) -> tuple[list[FileChanged | Notice], bool]:
        after = scan(workspace, self.without)
        changes = differences(before, after)
        left = MOST_HASHED_OF_CALL
        events = list[FileChanged | Notice]()
        for change in changes[:MOST_EVENTS]:
            events.append(event := _event(workspace, change, call, min(left, MOST_HASHED)))
            left -= change.size if event.sha256 else 0
        if len(changes) > MOST_EVENTS:
            events.append(Notice("files", MORE.format(count=len(changes) - MOST_EVENTS)))
        return events, before.whole and after.whole


def _event(workspace: Path, change: FileChange, call: str, most: int) -> FileChanged:
    path = os.fsencode(change.path).decode(errors="replace")
    if change.change == "deleted":
        return FileChanged(call, path, change.change)
    try:
        with regular_file(workspace, inside(workspace, change.path)) as opened:
            size = os.fstat(opened).st_size
            head = os.pread(opened, HEAD, 0)
            kind = media_type_of(head, change.path, whole=size <= HEAD)
            digest = _digest(opened) if size <= most else None
    except (ToolFailed, OSError):  # gone again, or out of reach
        return FileChanged(call, path, change.change, change.size)
    return FileChanged(call, path, change.change, size, digest, kind)


def _digest(opened: int) -> str:
    """The SHA-256 of at most MOST_HASHED bytes: a file may grow while it is read."""
    digest, at = hashlib.sha256(), 0
    while at <= MOST_HASHED and (block := os.pread(opened, _BLOCK, at)):
        digest.update(block)
        at += len(block)
    return digest.hexdigest()
