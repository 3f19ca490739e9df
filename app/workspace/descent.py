"""Everything in a folder, at any depth, with one descriptor open: a command may nest thousands of folders.

Neither its calls nor its descriptors grow with the depth, as those of `os.fwalk` and `shutil.rmtree` do.
On the way back a folder is opened as `..` and compared with the one that was left: it may have been moved meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from msgspec import Struct

from tools.base.workspace import DIRECTORY

PRIVATE = 0o700


class Entry(Struct, frozen=True):
    """A file, link or folder. `parent` is the descriptor of its folder, open until the next entry is asked for."""

    parent: int
    name: str
    is_folder: bool


class _Level(Struct):
    """A folder on the way: its name, what it is known by, and what is left to be seen in it."""

    name: str
    identity: tuple[int, int]
    left: list[tuple[str, bool]]


def entries_below(parent: int, name: str, *, unlock: bool = False) -> Iterator[Entry]:
    """Yield what is in a folder, each inner one behind what is in it. Links are not followed. Raises OSError.

    `unlock`: folders that may not be read or written become private ones that may.
    """
    here = _opened(parent, name, unlock)
    try:
        levels = [_level(here, name)]
        while levels:
            if not levels[-1].left:
                left = levels.pop()
                if levels:
                    here = _changed(here, "..", unlock=False)
                    if _identity(here) != levels[-1].identity:
                        raise OSError(errno.ESTALE, "it was moved meanwhile")
                    yield Entry(here, left.name, is_folder=True)
                continue
            inner, is_folder = levels[-1].left.pop()
            if is_folder:
                here = _changed(here, inner, unlock=unlock)
                levels.append(_level(here, inner))
            else:
                yield Entry(here, inner, is_folder=False)
    finally:
        os.close(here)


def remove_below(parent: int, name: str, *, unlock: bool = False) -> None:
    """Remove a folder and all in it. Raises OSError."""
    for entry in entries_below(parent, name, unlock=unlock):
        (os.rmdir if entry.is_folder else os.unlink)(entry.name, dir_fd=entry.parent)
    os.rmdir(name, dir_fd=parent)


def _changed(here: int, name: str, *, unlock: bool) -> int:
    """Open another folder, and close this one."""
    other = _opened(here, name, unlock)
    os.close(here)
    return other


def _opened(parent: int, name: str, unlock: bool) -> int:
    try:
        opened = os.open(name, DIRECTORY, dir_fd=parent)
    except PermissionError:
        if not unlock:
            raise
        os.chmod(name, PRIVATE, dir_fd=parent)
        opened = os.open(name, DIRECTORY, dir_fd=parent)
    if unlock:
        os.fchmod(opened, PRIVATE)
    return opened


def _level(folder: int, name: str) -> _Level:
    with os.scandir(folder) as found:
        return _Level(name, _identity(folder), [(one.name, one.is_dir(follow_symlinks=False)) for one in found])


def _identity(folder: int) -> tuple[int, int]:
    found = os.stat(folder)
    return found.st_dev, found.st_ino
