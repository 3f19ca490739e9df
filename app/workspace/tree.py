"""The tree of a workspace, folder by folder, and a search of its names. Bounded, and links are named, not followed."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from itertools import islice
from pathlib import Path
from typing import Literal

from msgspec import Struct

from app.workspace.private_files import private_reason
from app.workspace.skipped import HEAVY
from tools.base.outcome import ToolFailed
from tools.base.workspace import directory, inside

MOST_SHOWN = 500  # entries of an answer
MOST_READ = 50_000  # names of a folder, and of a search
MOST_FOUND = 200
MOST_S = 2.0
DEEPEST = 32
Kind = Literal["folder", "file", "link", "other"]


class TreeEntry(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A name in a folder. `private`: its content is not sent, nor is it changed over HTTP."""

    name: str
    path: str
    kind: Kind
    modified: float = 0.0
    size: int | None = None
    private: bool = False


class Listing(Struct, frozen=True):
    """Entries of a folder, or found ones. `more` counts the rest; `whole` is false where a limit ended it."""

    entries: list[TreeEntry]
    more: int
    whole: bool = True


def list_folder(workspace: Path, path: str, *, hidden: bool = False, start: int = 0) -> Listing:
    """The entries from the `start`th on, folders first. Blocks. Raises ToolFailed."""
    parts = inside(workspace, path)
    with directory(workspace, parts) as opened:
        names, whole = _names(opened, hidden=hidden)
        names.sort(key=lambda one: (not one[1], one[0].casefold(), one[0]))
        shown = names[start : start + MOST_SHOWN]
        entries = [entry for name, _ in shown if (entry := _entry(opened, parts, name))]
    return Listing(entries, max(0, len(names) - start - len(shown)), whole)


def find_names(workspace: Path, words: str, *, hidden: bool = False) -> Listing:
    """Entries anywhere whose name contains the words, in any letter case, nearest folders first. Blocks."""
    wanted = words.casefold()
    found = list[TreeEntry]()
    read = 0
    waiting = deque[tuple[str, ...]]([()])
    until = time.monotonic() + MOST_S
    while waiting:
        parts = waiting.popleft()
        try:
            with directory(workspace, parts) as opened:
                names, whole = _names(opened, hidden=hidden)
                names.sort(key=lambda one: one[0].casefold())
                hits = [name for name, _ in names if wanted in name.casefold()]
                found += [entry for name in hits[: MOST_FOUND + 1] if (entry := _entry(opened, parts, name))]
        except (ToolFailed, OSError):
            continue  # unreadable, or removed meanwhile
        read += len(names)
        if len(parts) < DEEPEST:
            waiting += [(*parts, name) for name, is_folder in names if is_folder and name not in HEAVY]
        if not whole or len(found) > MOST_FOUND or read > MOST_READ or time.monotonic() > until:
            return Listing(found[:MOST_FOUND], max(0, len(found) - MOST_FOUND), whole=False)
    return Listing(found, 0)


def _names(opened: int, *, hidden: bool) -> tuple[list[tuple[str, bool]], bool]:
    """The names of an open folder, each with whether it is a folder; and False if there are more."""
    with os.scandir(opened) as items:
        read = list(islice(items, MOST_READ + 1))
    return [
        (item.name, item.is_dir(follow_symlinks=False))
        for item in read[:MOST_READ]
        if hidden or not item.name.startswith(".")
    ], len(read) <= MOST_READ


def _entry(parent: int, parts: tuple[str, ...], name: str) -> TreeEntry | None:
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:  # removed since
        return None
    kind = _kind(found.st_mode)
    path = (*parts, name)
    size = found.st_size if kind == "file" else None
    private = private_reason(path) is not None
    return TreeEntry(
        name=_text(name), path=_text("/".join(path)), kind=kind, modified=found.st_mtime, size=size, private=private
    )


def _kind(mode: int) -> Kind:
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISLNK(mode):
        return "link"
    return "file" if stat.S_ISREG(mode) else "other"


def _text(name: str) -> str:
    return os.fsencode(name).decode(errors="replace")
