"""The files of a workspace that are searched: found, read whole or not at all, and compared with what was read.

No link is followed. What a name says to hold secrets is passed by, and so are hidden files and folders.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from pathlib import Path

from msgspec import Struct

from app.config.folders import PEOPLE
from app.workspace.open_folders import OpenFolders
from app.workspace.private_files import private_reason
from app.workspace.skipped import HEAVY
from tools.base.file_stamps import is_settled, stamp_of
from tools.base.outcome import ToolFailed
from tools.base.workspace import regular_file

UPLOADS, DOCUMENTS = "uploads", "documents"  # words of the setting: files of messages, and what models have written
MOST_FILES = 20_000  # of one workspace
MOST_LISTED = 50_000  # names of a folder
MOST_BYTES = 32 << 20  # of a file
DEEPEST = 32
TOO_MANY = f"there are more than {MOST_FILES:,} files"
TOO_LARGE = f"it has more than {MOST_BYTES >> 20} MB"


class Unreadable(Exception):
    """A file that is not searched. The message is a clause that says why."""


class Seen(Struct, frozen=True):
    """The stamps of files by their paths, and why others are not searched."""

    stamps: dict[str, str]
    problems: dict[str, str]


class FileContent(Struct, frozen=True):
    """A file as it was read. `stamp` is empty if it may have changed meanwhile, so that it is read again."""

    data: bytes
    stamp: str


def look(workspace: Path, folders: Sequence[str]) -> Seen:
    """Look at the files of these folders. Blocks; raises OSError if the workspace cannot be opened."""
    seen = Seen({}, {})
    waiting = deque((tuple(Path(one).parts), True) for one in folders if one != DOCUMENTS)
    if UPLOADS in folders:
        waiting.append(((), False))  # where files of messages lie
    with OpenFolders(str(workspace)) as opened:
        while waiting and seen.problems.get("") != TOO_MANY:
            parts, is_deep = waiting.popleft()
            try:
                with opened.open(parts) as folder, os.scandir(folder) as entries:
                    for entry in islice(entries, MOST_LISTED):
                        inner = (*parts, entry.name)
                        if _is_passed_by(inner):
                            continue
                        with suppress(FileNotFoundError):  # gone since it was listed
                            if entry.is_dir(follow_symlinks=False):
                                waiting += [(inner, True)] if is_deep and len(parts) < DEEPEST else []
                            elif entry.is_file(follow_symlinks=False):
                                _add(seen, "/".join(inner), entry.stat(follow_symlinks=False))
            except (FileNotFoundError, NotADirectoryError):
                continue  # not there yet, or replaced since
            except OSError as error:
                seen.problems["/".join(parts)] = f"the folder cannot be read: {error.strerror}"
    return seen


@lru_cache(MOST_FILES)  # 80 us each, nearly all of a look
def _is_passed_by(parts: tuple[str, ...]) -> bool:
    name = parts[-1]
    return name.startswith(".") or name in HEAVY or parts == (PEOPLE,) or private_reason(parts) is not None


def _add(seen: Seen, path: str, found: os.stat_result) -> None:
    if len(seen.stamps) >= MOST_FILES:
        seen.problems[""] = TOO_MANY
    elif path.isprintable():  # else it could not be cited in one line
        seen.stamps[path] = _text_of(found)


def read_whole(workspace: Path, path: str) -> FileContent:
    """Blocks. Raises Unreadable."""
    try:
        with regular_file(workspace, tuple(path.split("/"))) as opened:
            before = os.fstat(opened)
            if before.st_size > MOST_BYTES:
                raise Unreadable(TOO_LARGE)
            with open(opened, "rb", closefd=False) as file:
                data = file.read(MOST_BYTES + 1)
            after = os.fstat(opened)
    except (ToolFailed, OSError) as failure:
        raise Unreadable(str(failure)) from failure
    is_same = stamp_of(before) == stamp_of(after) and len(data) == after.st_size and is_settled(after)
    return FileContent(data, _text_of(after) if is_same else "")


def is_unchanged(workspace: Path, path: str, stamp: str, digest: bytes) -> bool:
    """Return True if the file that `read_file` would read has this content. Blocks."""
    try:
        with regular_file(workspace, tuple(path.split("/"))) as opened:
            found = os.fstat(opened)
            if stamp and _text_of(found) == stamp:
                return True
            with open(opened, "rb", closefd=False) as file:
                return sha256(file.read(MOST_BYTES + 1)).digest() == digest
    except (ToolFailed, OSError):
        return False


def _text_of(found: os.stat_result) -> str:
    return "-".join(map(str, stamp_of(found)))
