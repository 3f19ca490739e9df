"""Empty folders that stand for what is not there, so that a mount can close it to boxed commands.

Each is marked by its time of change, on the folder itself: whatever ends between, a crash or the machine, a later
command finds it, and takes no empty folder of the owner's for one. Putting something in it takes the mark away.
In a box another folder is mounted over it, with a `.gitignore` of its own: `git stash -u` and
`git clean` would else fail to remove it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

_MARK_S = 981_173_106  # 2001-02-03 04:05:06: no program's own, and even, as some file systems' times are
_NOT_OURS = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT}  # closed to this server, and so to its commands
_SEEN = "seen"
_NAMES = 16
_IGNORED = "*\n"  # and no word of explanation, which every `grep -r` would find


def own_folder() -> Path:
    """A folder of this account, where no box sees it: in a box these are others. Raises OSError.

    The first that can be had: in /tmp other accounts may have taken the name.
    """
    uid = os.getuid()
    tries = (f"/tmp/.dragoman-seals-{uid}{'-' * number}" for number in range(_NAMES))
    for name in ("/run/dragoman-seals", f"/run/user/{uid}/dragoman-seals", *tries):
        with suppress(OSError):
            os.mkdir(name, 0o700)  # noqa: PTH102 - called for every command
        with suppress(OSError):
            status = os.lstat(name)
            if stat.S_ISDIR(status.st_mode) and status.st_uid == uid and os.access(name, os.W_OK):
                return Path(name)
    raise PermissionError(errno.EPERM, "Other accounts have taken the folder's names", f"/tmp/.dragoman-seals-{uid}")


def placeholder_source() -> Path:
    """Return the folder that a box mounts over every placeholder. Raises OSError."""
    folder = own_folder() / _SEEN
    make_folder(folder)
    make_file(folder / ".gitignore", _IGNORED)
    return folder


def mark(path: Path) -> None:
    """Mark a folder as made here."""
    os.utime(path, (_MARK_S, _MARK_S))


def is_marked(path: str | Path) -> bool:
    """Return whether a folder was made here and not changed since."""
    try:
        return has_mark(os.lstat(path))
    except OSError:
        return False


def has_mark(status: os.stat_result) -> bool:
    return int(status.st_mtime) == _MARK_S


def remove_placeholder(path: str | Path) -> None:
    """Remove a marked, empty folder. Most are missing, and building a Path costs more than the check."""
    if is_marked(path):
        with suppress(OSError):
            os.rmdir(path)  # noqa: PTH106 - as above


def make_folder(folder: Path) -> bool:
    """Make a folder; return whether it is new. Raises OSError, but not where this account cannot write."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        return False
    return True


def make_file(file: Path, text: str) -> bool:
    """Make a file unless it exists; return whether it is new. Raises OSError as above."""
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno not in {errno.EEXIST, *_NOT_OURS}:
            raise
        return False
    with os.fdopen(opened, "w") as written:
        written.write(text)
    return True
