"""Permissions of the data directory: 0700, and 0600 for its files, however they were created.

Files of another account are refused, not taken over: it may know the token and have written the database. SQLite gives
its -wal and -shm files the mode of the database.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from errno import EPERM
from pathlib import Path

PRIVATE = 0o700
OTHER_ACCOUNTS = 0o077
ROOT = 0
# The files of dragoman. If the folder contains others, their permissions are not changed.
MODELS = "models"  # downloaded ones
OURS = (
    *("dragoman.db*", "checkpoints.db*", "knowledge.db*", "lock", "local.token*", "held-loop.json"),
    *("jobs", "keys", "mcp", "notifications", "persona", MODELS),
)


def make_private(folder: Path) -> None:
    """Create the data directory if it does not exist, and remove the permissions of other accounts in it.

    The folder itself comes first, so that no other account can change what is checked then. Raises OSError.
    """
    folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    if folder.is_symlink():
        _check_link(folder)
    real = folder.resolve(strict=True)
    _restrict(real)
    for path in _ours(real):
        _restrict(path)


def make_private_file(path: Path) -> None:
    """Create an empty file of the data directory if it does not exist. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _ours(folder: Path) -> Iterator[Path]:
    for pattern in OURS:
        for top in folder.glob(pattern):
            yield top
            if not top.is_symlink() and top.is_dir():
                yield from top.rglob("*")  # follows no links


def _restrict(path: Path) -> None:
    """Remove the permissions of other accounts.

    Raises OSError for a file of another account, and for a shared folder such as /tmp.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return  # a running server has just removed it
    if stat.S_ISLNK(found.st_mode):
        _check_link(path)
        return  # it has no mode of its own, and its target is not only for the server
    if found.st_uid != os.geteuid():
        raise _foreign(path, found.st_uid)
    mode = found.st_mode
    if not mode & OTHER_ACCOUNTS or not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        return
    if mode & stat.S_ISVTX:
        raise OSError(EPERM, "it is shared with other accounts")
    path.chmod(stat.S_IMODE(mode) & ~OTHER_ACCOUNTS)


def _check_link(link: Path) -> None:
    """Accept a link if this account or root owns both the link and its target.

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
