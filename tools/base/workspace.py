"""Files inside one directory, and never outside of it.

Each component of a path is opened from the directory before it without following symbolic links, so neither a link
nor a rename at the wrong moment leads out. Every function blocks; every failure is a ToolFailed with its reason.

A tool gets the paths of its calls as a `ReadFile`, a `WrittenFile` or a `Folder`, as its row says (`paths`). They are
no `str` and no `os.PathLike`, so that a tool cannot open, join or follow what a model has written.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path, PosixPath

from tools.base.outcome import ToolFailed

# How files and directories are opened in an open directory: never through a link.
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK the opening of a FIFO would wait for its writer.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH_BYTES = 4_096  # Linux's own bound

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def inside(workspace: Path, path: str) -> tuple[str, ...]:
    """The components of `path` below the workspace; none for the workspace itself."""
    if "\0" in path:
        raise ToolFailed("A path cannot contain a NUL character.")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError as error:
        raise ToolFailed(f"The path {path!r} is not valid text", ": write it again.") from error
    if size > _PATH_BYTES:
        raise ToolFailed(
            f"A path has at most {_PATH_BYTES:,} bytes, and this one has {size:,}", ": give the right one."
        )
    # Taken as text: a link is never followed, so `..` cannot lead anywhere else.
    normalised = Path(os.path.normpath(workspace.absolute() / path))
    for root in (workspace.absolute(), workspace.resolve()):
        if normalised.is_relative_to(root):
            return normalised.relative_to(root).parts
    raise ToolFailed(f"{path} is outside the workspace {workspace}", ": give a path relative to the workspace.")


class OwnFolder(PosixPath):
    """A folder below a workspace, by its real path, beyond which the files of a conversation do not reach.

    Commands that work in all of the workspace can put a link in its place at any moment, so each opening looks for one.
    `whole` is that workspace, to which paths in rules and permissions are relative.
    """

    whole: Path | None = None

    @classmethod
    def below(cls, home: Path, name: str) -> OwnFolder:
        folder = cls(home, name)
        folder.whole = home
        return folder


def home_of(workspace: Path) -> Path:
    """Return the whole workspace that a run's folder is in."""
    return workspace.whole or workspace if isinstance(workspace, OwnFolder) else workspace


def open_workspace(workspace: Path | str) -> int:
    """Open the directory that paths are below. Raises OSError, also if an own folder was replaced by a link."""
    opened = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if isinstance(workspace, OwnFolder) and Path(f"/proc/self/fd/{opened}").readlink() != Path(workspace):
        os.close(opened)
        raise OSError(errno.ELOOP, "it, or a folder above it, was replaced by a link")
    return opened


@contextmanager
def directory(workspace: Path, parts: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
    """An open directory below the workspace; missing ones are made when `create`."""
    with explained(str(workspace)):
        opened = open_workspace(workspace)
    try:
        for depth, name in enumerate(parts, start=1):
            with explained("/".join(parts[:depth])):
                below = _directory_in(opened, name, create=create)
            os.close(opened)
            opened = below
        yield opened
    finally:
        os.close(opened)


def _directory_in(parent: int, name: str, *, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
    try:
        return os.open(name, DIRECTORY, dir_fd=parent)
    except NotADirectoryError:
        # Linux answers so for a link too, which deserves its own sentence.
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise ToolFailed(f"{name} is a symbolic link, and links are not followed", ": use the real path.") from None
        raise


@contextmanager
def regular_file(workspace: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """A regular file, open for reading."""
    shown = "/".join(parts) or "."
    if not parts:
        raise ToolFailed(f"{shown} is a directory, not a file", ": look into it with list_files.")
    with directory(workspace, parts[:-1]) as parent:
        _only_regular(parent, parts[-1], shown)
        with explained(shown):
            opened = os.open(parts[-1], READ, dir_fd=parent)
    try:
        # Checked again on the open file: the name may point to another file by now.
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise ToolFailed(f"{shown} is not a regular file.")
        yield opened
    finally:
        os.close(opened)


def write(workspace: Path, parts: tuple[str, ...], content: bytes) -> None:
    """Replace or create a file whole or not at all; directories on the way are made; its mode is kept."""
    shown = "/".join(parts) or "."
    if not parts:
        raise ToolFailed(f"{shown} is a directory", ": give the path of a file.")
    with directory(workspace, parts[:-1], create=True) as parent, explained(shown):
        mode = _only_regular(parent, parts[-1], shown, missing_is_fine=True)
        temporary = f".{secrets.token_hex(8)}.tmp"
        opened = os.open(temporary, CREATE, 0o666, dir_fd=parent)
        try:
            with os.fdopen(opened, "wb") as file:
                if mode is not None:
                    os.fchmod(opened, mode)
                file.write(content)
            os.rename(temporary, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=parent)
            raise


def _only_regular(parent: int, name: str, shown: str, *, missing_is_fine: bool = False) -> int | None:
    """The permissions of a regular file; None when it is missing and may be."""
    try:
        with explained(shown):
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except ToolFailed as error:
        if missing_is_fine and isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    if not stat.S_ISREG(mode):
        kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), "a file")
        raise ToolFailed(f"{shown} is {kind}, not a file", ": give the path of a regular file.")
    return stat.S_IMODE(mode)


@contextmanager
def explained(shown: str) -> Iterator[None]:
    """Turn an operating system's refusal into a ToolFailed that names the path."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolFailed(f"{shown} does not exist", ": see what there is with list_files.") from error
    except NotADirectoryError as error:
        raise ToolFailed(f"{shown} is not below a directory: a file is in the way.") from error
    except OSError as error:
        raise ToolFailed(f"{shown} cannot be used: {error.strerror}.") from error


class CallPath:
    """A path that a call names. Its text is as the model wrote it, for sentences."""

    def __init__(self, workspace: Path, written: str) -> None:
        """Raises ToolFailed for a path outside of the workspace."""
        self.parts = inside(workspace, written)
        self._workspace, self._written = workspace, written

    def __str__(self) -> str:
        return self._written


class ReadFile(CallPath):
    """A regular file."""

    @contextmanager
    def opened(self) -> Iterator[BufferedReader]:
        """Open it for reading."""
        with regular_file(self._workspace, self.parts) as opened, open(opened, "rb", closefd=False) as file:
            yield file


class WrittenFile(ReadFile):
    """A regular file that may be absent."""

    def write(self, content: bytes) -> None:
        """Replace or create it whole or not at all."""
        write(self._workspace, self.parts, content)


class Folder(CallPath):
    """A directory: the workspace where a call names none."""

    @contextmanager
    def entries(self, below: Sequence[str] = ()) -> Iterator[Iterator[os.DirEntry[str]]]:
        """Look into it, or into one further `below`."""
        with directory(self._workspace, (*self.parts, *below)) as opened, os.scandir(opened) as entries:
            yield entries
