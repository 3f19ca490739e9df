"""A bounded look at the files of a workspace: which there are, with size and times, so that two looks can be compared.

Folders are opened one below the other without following links, nearest first, so what lies in the upper folders is
found even if the workspace is too large to be looked at whole.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct

from tools.base.outcome import ToolFailed
from tools.base.workspace import directory

MOST_ENTRIES = 10_000
MOST_S = 2.0  # on a slow disk
DEPTH = 32
# Not looked into: large, and made again by programs.
SKIPPED = frozenset({".git", ".hg", ".jj", ".venv", "__pycache__", "node_modules", ".cache", ".mypy_cache", ".tox"})
CLOCK_NS = 50_000_000  # by which a file system's clock may be behind

Parts = tuple[str, ...]


FileState = tuple[int, int, int, int]  # size, inode, time of the last write, of the last change of its entry


class Scan(Struct, frozen=True):
    """The states of regular files, by their path in the workspace. `whole`: everything was looked at."""

    files: Mapping[str, FileState]
    began_ns: int
    whole: bool = True


class FileChange(Struct, frozen=True):
    """`change` is `created`, `modified` or `deleted`; `size` that of the file now."""

    path: str
    change: str
    size: int = 0


def scan(workspace: Path, without: frozenset[str] = frozenset(), most: int = MOST_ENTRIES) -> Scan:
    """Look at the workspace, but for the entries `without` in its root. Blocks; never raises."""
    began, ends = time.time_ns(), time.monotonic() + MOST_S
    files: dict[str, FileState] = {}
    waiting: deque[Parts] = deque([()])
    looked_at, too_deep = 0, False
    while waiting:
        if looked_at >= most or time.monotonic() > ends:
            return Scan(files, began, whole=False)
        below = waiting.popleft()
        with suppress(ToolFailed, OSError), directory(workspace, below) as opened:  # removed meanwhile, or unreadable
            folders, seen = _look(opened, "/".join((*below, "")), files, most - looked_at)
            looked_at += seen
            inner = [(*below, name) for name in folders if below or name not in without]
            too_deep |= bool(inner) and len(below) >= DEPTH
            waiting += inner if len(below) < DEPTH else ()
    return Scan(files, began, not too_deep and looked_at < most)


def _look(opened: int, prefix: str, files: dict[str, FileState], most: int) -> tuple[list[str], int]:
    """Add the files of an open folder; return the folders in it, and the number of its entries."""
    folders, seen = list[str](), 0
    with os.scandir(opened) as entries:
        for entry in islice(entries, most):
            seen += 1
            if entry.is_file(follow_symlinks=False):
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # removed meanwhile
                    continue
                files[prefix + entry.name] = status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
            elif entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED:
                folders.append(entry.name)
    return folders, seen


def differences(before: Scan, after: Scan) -> list[FileChange]:
    """Return the changes between two looks, sorted by path.

    Where one of them did not see everything, a missing file may only not have been reached: then only files count
    that were changed since the first look.
    """
    since = 0 if before.whole and after.whole else before.began_ns - CLOCK_NS
    old = before.files
    changes = [
        FileChange(path, "modified" if path in old else "created", state[0])
        for path, state in after.files.items()
        if state[3] >= since and old.get(path, ())[:3] != state[:3]
    ]
    if not since:
        changes += [FileChange(path, "deleted") for path in old.keys() - after.files.keys()]
    return sorted(changes, key=lambda change: change.path)
