"""The data directory is for the account that runs the server alone, however it was made: 0700, and its files 0600.

What another account has put there is refused, not taken over: it may know the token and have written the database.
SQLite gives its -wal and -shm files the mode of the database.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from errno import EPERM
from pathlib import Path

PRIVATE = 0o700
OTHERS = 0o077
ROOT = 0
# What dragoman keeps there. Where the setting names a folder that has more in it, that is not ours to change.
OURS = ("dragoman.db*", "lock", "local.token*", "jobs", "keys", "mcp", "persona")


def make_private(folder: Path) -> None:
    """Make the data directory if it is not there, and take from others what they may do in it.

    The folder itself is closed first: what is looked at then stays as it is. Raises OSError.
    """
    folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    if folder.is_symlink():
        _check_link(folder)
    real = folder.resolve(strict=True)
    _take_from_others(real)
    for path in _ours(real):
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
    """Raises OSError for what is another account's, and for a shared folder such as /tmp."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return  # a server that runs has just removed it
    if stat.S_ISLNK(found.st_mode):
        _check_link(path)
        return  # it has no mode of its own, and what it leads to is for more than the server
    if found.st_uid != os.geteuid():
        raise _foreign(path, found.st_uid)
    mode = found.st_mode
    if not mode & OTHERS or not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        return
    if mode & stat.S_ISVTX:
        raise OSError(EPERM, "it is shared with other accounts")
    path.chmod(stat.S_IMODE(mode) & ~OTHERS)


def _check_link(link: Path) -> None:
    """A link counts if this account or root made it, and if nobody else decides about what it leads to.

    Raises OSError.
    """
    trusted = (os.geteuid(), ROOT)
    if (owner := link.lstat().st_uid) not in trusted:
        raise _foreign(link, owner)
    try:
        found = link.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    if found.st_uid not in trusted:
        raise _foreign(link.resolve(), found.st_uid)


def _foreign(path: Path, uid: int) -> OSError:
    why = f"{path} belongs to another account (user id {uid}), which may know or have written what is in it"
    return OSError(EPERM, f"{why}; remove it, or run dragoman as that account")
