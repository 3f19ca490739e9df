"""Putting the files of a message into the workspace: under their own names, and never over another file."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from app.core.attachments import File
from app.storage.changes import StoreFailed
from tools.base.outcome import ToolFailed
from tools.base.workspace import CREATE, directory, regular_file
from tools.sandbox.owner_run_paths import owner_run_reason

MOST_NAME = 200  # bytes
MOST_TRIES = 1_000
# Of file systems that know no files without a name (network drives, FAT), or give them none later; no /proc.
UNNAMED_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.EPERM, errno.EXDEV, errno.ENOENT})


class UnsafeName(Exception):
    """A file has a name that it cannot lie under in the workspace. The message says why, and what to do."""


class NotPlaced(StoreFailed):
    """The workspace cannot take a file."""


async def placed(files: Sequence[File], workspace: Path) -> Sequence[File]:
    """Write the files into the workspace; return them with their `path`. Raises UnsafeName, NotPlaced.

    The same bytes under the same name are not written again.
    """
    for file in files:
        check_name(file.attachment.file_name)
    return await asyncio.to_thread(_placed, files, workspace) if files else files


def check_name(name: str) -> None:
    """Raises UnsafeName."""
    if problem := _problem(name):
        raise UnsafeName(f"The file {name[:80]!r} cannot be taken: {problem}. Send it under another name.")


def _problem(name: str) -> str | None:
    if "/" in name or "\\" in name or name in (".", ".."):
        return "its name is a path"
    if not name.isprintable() or name != name.strip() or name.endswith("."):
        return "its name has control characters, or a blank or a dot at its end"
    try:
        if len(name.encode()) > MOST_NAME:
            return f"its name has more than {MOST_NAME} bytes"
    except UnicodeEncodeError:
        return "its name is not valid text"
    return owner_run_reason([name])


def _placed(files: Sequence[File], workspace: Path) -> Sequence[File]:
    return [replace(file, attachment=replace(file.attachment, path=_place(file, workspace))) for file in files]


def _place(file: File, workspace: Path) -> str:
    for name in numbered_names(file.attachment.file_name):
        try:
            if _write(workspace, name, file.data) or _is_same(workspace, name, file):
                return name
        except ToolFailed as failure:
            raise NotPlaced(f"{name} could not be put into the workspace: {failure}") from failure
        except OSError as error:
            reason = os.strerror(error.errno or errno.EIO)
            raise NotPlaced(f"{name} could not be put into the workspace: {reason}.") from error
    raise NotPlaced(f"The workspace has too many files called {file.attachment.file_name}. Send it under another name.")


def numbered_names(name: str) -> Iterator[str]:
    """Yield the name, then `name (2)`, `name (3)` ... with its ending."""
    yield name
    stem, suffix = os.path.splitext(name)  # noqa: PTH122 - `Path` takes another view of dots
    yield from (f"{stem} ({number}){suffix}" for number in range(2, MOST_TRIES))


def _write(workspace: Path, name: str, data: bytes) -> bool:
    """Create the file; return False if there is something of that name."""
    with directory(workspace, ()) as parent:
        try:
            return create_whole(parent, name, data)
        except OSError as error:
            if error.errno not in UNNAMED_UNSUPPORTED:
                raise
        return create_whole_beside(parent, name, data)


def create_whole(parent: int, name: str, data: bytes) -> bool:
    """Create the file with all its bytes: it has no name before. Return False if there is something of that name."""
    opened = os.open(".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o666, dir_fd=parent)
    with os.fdopen(opened, "wb") as file:
        file.write(data)
        file.flush()
        try:
            os.link(f"/proc/self/fd/{opened}", name, dst_dir_fd=parent, follow_symlinks=True)
        except FileExistsError:
            return False
    return True


def create_whole_beside(parent: int, name: str, data: bytes) -> bool:
    """Do the same where files need a name: an empty one holds it until a whole one is renamed to it."""
    try:
        os.close(os.open(name, CREATE, 0o666, dir_fd=parent))
    except FileExistsError:
        return False
    temporary = f".{secrets.token_hex(8)}.tmp"
    try:
        with os.fdopen(os.open(temporary, CREATE, 0o666, dir_fd=parent), "wb") as file:
            file.write(data)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        for one in (temporary, name):
            with suppress(FileNotFoundError):
                os.unlink(one, dir_fd=parent)
        raise
    return True


def _is_same(workspace: Path, name: str, file: File) -> bool:
    try:
        with regular_file(workspace, (name,)) as opened:
            if os.fstat(opened).st_size != len(file.data):
                return False
            with open(opened, "rb", closefd=False) as there:
                return hashlib.file_digest(there, "sha256").hexdigest() == file.attachment.sha256
    except ToolFailed:  # a folder, a link
        return False
