"""The changes of a call in the workspace, as events, from a look before it and one after it.

A command does not report its writes, so the files are compared. What another program, or another run of the same
person, changes in that time is reported as well; what a background job writes later is not.
"""

from __future__ import annotations

import hashlib
import os
from functools import partial
from itertools import islice
from pathlib import Path

from msgspec import Struct

from app.core.events import FileChanged, Notice
from app.storage.checkpoints import FILE, LEFT_OUT, SKIPPED, Entry
from app.workspace.content_types import HEAD, media_type_of
from app.workspace.scanner import Look, differences
from app.workspace.skipped import is_protected
from tools.base.outcome import ToolFailed
from tools.base.workspace import inside, regular_file
from tools.sandbox.owner_commands import CommandFiles, owner_command

MOST_EVENTS = 32  # of a call
BEGINNING = 1 << 16  # bytes of a file in which the text is looked for that makes it run; a larger one may hold it
FOLDER_KIND = "inode/directory"
MOST_HASHED = 32 << 20  # bytes of a file: of a larger one no digest is made
MOST_HASHED_OF_CALL = 128 << 20
CLOCK_NS = 50_000_000  # by which a file system's clock may be behind
PROTECTED, REMADE = "protected", "programs make it again"
UNKEPT = "too large to be kept, not readable, or a secret of the server is in it"
_BLOCK = 1 << 20
MORE = "{count:,} more files were created, modified or deleted by this call."


class FileChange(Struct, frozen=True):
    """`change` is `created`, `modified` or `deleted`; `entry` is the file now. `unkept`: why no undo restores it."""

    path: str
    change: str
    entry: Entry | None = None
    unkept: str | None = None


def changed_files(before: Look, after: Look, *, keeps: bool) -> list[FileChange]:
    """Return the changes of regular files between two looks, by path. `keeps`: an undo restores them if it can.

    Where one of the looks did not see everything, a missing file may only not have been reached: then only files count
    that were changed since the first look.
    """
    is_whole = before.is_whole and after.is_whole
    since = 0 if is_whole else before.began_ns - CLOCK_NS
    found = list[FileChange]()
    for path, old, new in differences(before.entries, after.entries, _is_untouched):
        was_file, is_file = map(_is_file, (old, new))
        name = os.fsdecode(path)
        unkept = unkept_reason(path, old, new) if keeps else None
        if is_file and new is not None and new.changed >= since:
            found.append(FileChange(name, "modified" if was_file else "created", new, unkept))
        elif was_file and not is_file and is_whole:
            found.append(FileChange(name, "deleted", None, unkept))
        elif old is None and new is not None and is_whole and _is_protected_folder(path, new):
            found.append(FileChange(name, "created", new, unkept))
    return sorted(found, key=lambda change: change.path)


def _is_file(entry: Entry | None) -> bool:
    """Return True for a file; a folder that is left out has no times."""
    return entry is not None and (entry.kind == FILE or (entry.kind == LEFT_OUT and entry.changed != 0))


def _is_protected_folder(path: bytes, entry: Entry) -> bool:
    """Return True for a folder that no look goes into because the owner's programs obey what is in it."""
    return entry.kind == LEFT_OUT and not _is_file(entry) and is_protected(os.fsdecode(path.rpartition(b"/")[2]))


def _is_untouched(entry: Entry, before: Entry | None) -> bool:
    """Return False for a file that was written again, also if its content is the same."""
    if before is None or not entry.is_same(before):
        return False
    return entry.kind != FILE or (entry.inode, entry.modified) == (before.inode, before.modified)


def unkept_reason(path: bytes, old: Entry | None, new: Entry | None) -> str | None:
    """Return why an undo leaves a path as it is; None if it restores it."""
    left = next((one for one in (new, old) if one is not None and not one.can_restore), None)
    if left is None:
        return None
    if is_protected(os.fsdecode(path.rpartition(b"/")[2])):
        return PROTECTED
    return REMADE if left.kind == SKIPPED else UNKEPT


def events_of(changes: list[FileChange], workspace: Path, call: str) -> list[FileChanged | Notice]:
    """Return the events of a call's changes. Blocks."""
    left = MOST_HASHED_OF_CALL
    events = list[FileChanged | Notice]()
    commands = _commands(changes)
    chosen = sorted(changes, key=lambda change: change.path not in commands)[:MOST_EVENTS]
    for change in sorted(chosen, key=lambda change: change.path):
        events.append(event := _event(workspace, change, call, commands.get(change.path), min(left, MOST_HASHED)))
        left -= event.size or 0 if event.sha256 else 0
    if len(changes) > MOST_EVENTS:
        events.append(Notice("files", MORE.format(count=len(changes) - MOST_EVENTS)))
    return events


def _commands(changes: list[FileChange]) -> dict[str, CommandFiles]:
    """Return the commands of the owner's that run a changed file, by its path: of as many files as have events."""
    found = ((one.path, owner_command(one.path)) for one in changes if one.entry is not None)
    return dict(islice(((path, row) for path, row in found if row is not None), MOST_EVENTS))


def _event(workspace: Path, change: FileChange, call: str, row: CommandFiles | None, most: int) -> FileChanged:
    path, entry = os.fsencode(change.path).decode(errors="replace"), change.entry
    runs_at = row.command if row else None
    event = partial(FileChanged, call, path, change.change, unkept=change.unkept)
    if entry is None:
        return event()
    if not _is_file(entry):
        return event(kind=FOLDER_KIND, runs_at=runs_at)
    try:
        with regular_file(workspace, inside(workspace, change.path)) as opened:
            size = os.fstat(opened).st_size
            head = os.pread(opened, HEAD, 0)
            kind = media_type_of(head, change.path, whole=size <= HEAD)
            digest = entry.digest.hex() or (_digest(opened) if size <= most else None)
            if row and row.holds and size <= BEGINNING and _lacks(os.pread(opened, BEGINNING, 0), row.holds):
                runs_at = None
    except (ToolFailed, OSError):  # gone again, or out of reach
        return event(size=entry.size, runs_at=runs_at)
    return event(size=size, sha256=digest, kind=kind, runs_at=runs_at)


def _lacks(content: bytes, text: bytes) -> bool:
    """Return True if JSON does not have this text, which escapes could spell in other ways."""
    return text not in content and b"\\u" not in content


def _digest(opened: int) -> str:
    """The SHA-256 of at most MOST_HASHED bytes: a file may grow while it is read."""
    digest = hashlib.sha256()
    at = 0
    while at <= MOST_HASHED and (block := os.pread(opened, _BLOCK, at)):
        digest.update(block)
        at += len(block)
    return digest.hexdigest()
