"""Restoring paths of a workspace one by one, each in one step, so that it can be cut off anywhere and begun again."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from app.storage.checkpoints import FILE, FOLDER, LINK, CheckpointStore, Entries, Entry
from app.workspace.scanner import MODE, times_of
from tools.base.outcome import ToolFailed
from tools.base.workspace import directory

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
Step = tuple[bytes, Entry | None, Entry | None]
"""A path, what is there, and what it is to be."""


class Plan(Struct, frozen=True):
    """Steps to take; paths that are as they are to be already (`done`), and such as are something else (`others`)."""

    steps: list[Step]
    done: frozenset[bytes]
    others: list[bytes]


def plan_of(there: Entries, wanted: Iterable[Step]) -> Plan:
    """Return how each path, which was one thing, becomes another, also where that had been begun."""
    steps, done, others = list[Step](), set[bytes](), list[bytes]()
    for path, old, new in wanted:
        found = there.get(path)
        if _is_same(found, new):
            done.add(path)
        elif _is_same(found, old) or _is_between(found, old, new):
            steps.append((path, found, new))
        else:
            others.append(path)
    return Plan(steps, frozenset(done), others)


def _is_same(one: Entry | None, other: Entry | None) -> bool:
    return one is other or (one is not None and one.is_same(other))


def _is_between(found: Entry | None, old: Entry | None, new: Entry | None) -> bool:
    """Return True for a folder, whose mode comes last, and for the gap in which a folder takes the place of a file."""
    if found is None:
        return _is_folder(old) or _is_folder(new)
    return _is_folder(found) and (_is_folder(new) or _is_folder(old))


def _is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == FOLDER


def restore(store: CheckpointStore, workspace: Path, steps: Sequence[Step], run: str) -> None:
    """Make each path its last entry: first what goes, then folders, then contents. It can be repeated.

    Raises OSError, ToolFailed, StoreFailed.
    """
    by_depth = sorted(steps, key=lambda step: step[0].count(b"/"))
    for path, old, new in reversed(by_depth):
        if old and (new is None or (old.kind == FOLDER) != (new.kind == FOLDER)):
            _remove(workspace, path, old)
    for path, _, new in by_depth:
        if new and new.kind == FOLDER:
            _make_folder(workspace, path)
    for path, old, new in by_depth:
        if new and new.kind in (FILE, LINK):
            _write(store, workspace, path, old, new, run=run)
    for path, _, new in reversed(by_depth):
        if new and new.kind == FOLDER:
            with directory(workspace, _parts(path)) as opened:
                os.fchmod(opened, new.mode)


def _parts(path: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(path).split("/"))


def _remove(workspace: Path, path: bytes, old: Entry) -> None:
    *above, name = _parts(path)
    with directory(workspace, tuple(above)) as parent:
        if old.kind == FOLDER:
            with suppress(OSError):  # others have put something there, or it is gone
                os.rmdir(name, dir_fd=parent)
        else:
            _check_unchanged(parent, name, old)
            os.unlink(name, dir_fd=parent)


def _make_folder(workspace: Path, path: bytes) -> None:
    *above, name = _parts(path)
    with directory(workspace, tuple(above), create=True) as parent, suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)


def _check_unchanged(parent: int, name: str, found: Entry | None) -> None:
    """Raise ToolFailed unless this is what the look has found: a person may have written in the meantime.

    A folder needs no check: no rename replaces it, and only an empty one is removed.
    """
    if _is_folder(found):
        return
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        is_same = found is None
    else:
        is_same = _is_entry(parent, name, status, found)
    if not is_same:
        raise ToolFailed(f"{name!a} has changed in the meantime.")


def _is_entry(parent: int, name: str, status: os.stat_result, entry: Entry | None) -> bool:
    """Return whether a path is this entry; None for what is in no look, such as a pipe."""
    kind = stat.S_IFMT(status.st_mode)
    if entry is None:
        return kind not in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR)
    if entry.kind == LINK:
        return kind == stat.S_IFLNK and _digest(os.fsencode(os.readlink(name, dir_fd=parent))) == entry.digest
    if (kind, status.st_mode & MODE, status.st_size) != (stat.S_IFREG, entry.mode, entry.size):
        return False
    if entry.inode and entry.is_settled and (entry.inode, entry.modified, entry.changed) == times_of(status):
        return True
    with os.fdopen(os.open(name, _READ, dir_fd=parent), "rb") as file:
        return _digest(file.read(entry.size + 1)) == entry.digest


def _digest(content: bytes) -> bytes:
    return sha256(content).digest()


def _write(
    store: CheckpointStore, workspace: Path, path: bytes, found: Entry | None, entry: Entry, *, run: str
) -> None:
    """Write the content beside its place, under a name that a second attempt finds, and rename it."""
    content = store.content(entry.digest)
    *above, name = _parts(path)
    temporary = f".{run}.undo"
    with directory(workspace, tuple(above), create=True) as parent:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=parent)
        try:
            if entry.kind == LINK:
                os.symlink(content, os.fsencode(temporary), dir_fd=parent)
            else:
                with os.fdopen(os.open(temporary, _NEW_FILE, 0o600, dir_fd=parent), "wb") as file:
                    file.write(content)
                    os.fchmod(file.fileno(), entry.mode)
            _check_unchanged(parent, name, found)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=parent)
            raise
