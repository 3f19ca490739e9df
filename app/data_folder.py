"""The data directory is for the account that runs the server alone, however it was made: 0700, and its files 0600.

SQLite gives its -wal and -shm files the mode of the database.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

PRIVATE = 0o700
OTHERS = 0o077
# What dragoman keeps there. Where the setting names a folder that has more in it, that is not ours to change.
OURS = ("dragoman.db*", "lock", "local.token*", "jobs", "keys", "mcp", "persona")


def make_private(folder: Path) -> None:
    """Make the data directory if it is not there, and take from others what they may do in it. Raises OSError."""
    folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    _take_from_others(folder)
    for path in _ours(folder):
        _take_from_others(path)


def make_private_file(path: Path) -> None:
    """Make a file of the data directory, empty, if it is not there. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _ours(folder: Path) -> Iterator[Path]:
    for pattern in OURS:
        for top in folder.glob(pattern):
            yield top
            if not top.is_symlink() and top.is_dir():
                yield from top.rglob("*")  # follows no links


def _take_from_others(path: Path) -> None:
    """Raises OSError, for a shared folder such as /tmp too: it is nobody's to close."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return  # a server that runs has just removed it
    if not mode & OTHERS or not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        return  # a link has no mode of its own, and leads to what may be somebody else's
    if mode & stat.S_ISVTX:
        raise OSError(0, "it is shared with other accounts")
    path.chmod(stat.S_IMODE(mode) & ~OTHERS)
