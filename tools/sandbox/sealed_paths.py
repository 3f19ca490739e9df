"""Paths that the owner's own programs run or obey (`owner_run_paths`), closed to the boxed commands of a workspace.

The places have fixed names in the workspace's root. What is closed is decided once for all commands that run there at
the same time, by the first of them, while no other runs: from then on each of them has these places as mounts, so that
none can rename, remove or replace one, and no name that leads a later mount astray can be put there. A place that a
command can still move (in a sub-folder, below a folder that it can rename) is never mounted: bubblewrap looks its name
up on the machine, where a link of the command's would lead anywhere.

What is not there needs a mount point: an empty folder (`placeholders`), made by the first command and removed by
the last; a lock that no box reaches tells which that is. A repository is pinned, because its folder could else be
renamed, and gets a `commondir` that leads to itself, because another one would lead to another config. The last command
removes the links that commands have left in it: git writes through some (`COMMIT_EDITMSG`), wherever they lead.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from tools.base.file_lock import try_lock
from tools.base.workspace import open_workspace
from tools.sandbox.owner_run_paths import SEALABLE, SEALED
from tools.sandbox.placeholders import (
    is_marked,
    make_file,
    make_folder,
    mark,
    own_folder,
    placeholder_source,
    remove_placeholder,
)

ITSELF = ".\n"  # a `commondir` of a repository that is its own
_GIT = ".git"
_PLAIN = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
_CONFIG_OF_WORKTREE = b"worktreeconfig"  # the setting by which git reads `config.worktree`
# Of a repository. Worktrees and submodules have configs, hooks or a `commondir` of their own in there.
_CLOSED_IN_GIT = ("config", "config.worktree", "commondir", "hooks", "worktrees", "modules")
_NOT_SEARCHED = frozenset(("objects", "hooks", "worktrees", "modules", "lfs", "annex"))  # closed, large, or git's own
_ENTRIES = 20_000  # of a repository that are looked at for links


class HeldSeals(Struct, frozen=True):
    """Seals that are in force. `mounts`: bubblewrap's words; `links` were in the repository before any command ran."""

    lock: int = -1
    mounts: tuple[str, ...] = ()
    links: frozenset[str] = frozenset()


class Seals(Struct, frozen=True):
    """The seals of a workspace: call `begin` before a command line is built, and `end` when nothing of it runs.

    `names` are of the places that cannot be made either; others are closed where they are.
    """

    workspace: Path
    names: tuple[str, ...] = SEALED

    def begin(self) -> HeldSeals:
        """Make what is missing, or join the commands that run already. Raises OSError."""
        if not self.workspace.is_dir():
            return HeldSeals()
        os.close(open_workspace(self.workspace))  # nothing is made behind a link
        path = _lock_file(self.workspace)
        while True:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if try_lock(lock):
                    if crashed := _read(lock):  # a server and its commands were killed before they could end
                        self._clean(frozenset(crashed["links"]))
                    _write(lock, self._decide())
                fcntl.flock(lock, fcntl.LOCK_SH)  # not in one step: what counts is what is read under it
                decided = _read(lock)
                if decided and _is_there(path, lock):
                    return HeldSeals(lock, tuple(decided["mounts"]), frozenset(decided["links"]))
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)  # the file of earlier commands, which was just removed

    def end(self, held: HeldSeals) -> None:
        """Remove again what was made, unless other commands run in the workspace."""
        if held.lock < 0:
            return
        if not try_lock(held.lock):
            os.close(held.lock)
            return
        try:
            self._clean(held.links)
        finally:
            _lock_file(self.workspace).unlink(missing_ok=True)
            os.close(held.lock)

    def _clean(self, links: frozenset[str]) -> None:
        """Remove what commands and seals left that a program would obey. What cannot be removed stays."""
        try:
            os.close(open_workspace(self.workspace))
        except OSError:
            return  # a link in its place, and what lies behind that is not of these commands
        git = self.workspace / _GIT
        with suppress(OSError):
            for left in _links(git) - links:
                (git / left).unlink()
        if is_marked(git / "commondir"):
            with suppress(OSError):
                (git / "commondir").unlink()
        for name in SEALABLE:
            remove_placeholder(f"{self.workspace}/{name}")

    def _decide(self) -> dict[str, list[str]]:
        """Decide for all commands until the last has ended; none runs now. Raises OSError."""
        for name in self.names:
            if make_folder(place := self.workspace / name):
                mark(place)
        git = self.workspace / _GIT
        if _is_repository(git):
            _complete(git)
        mounts = [word for words in self._closed() for word in words]
        return {"mounts": mounts, "links": sorted(_links(git))}

    def _closed(self) -> Iterator[tuple[str, str, str]]:
        """Words for each place, outer ones first. A link is none: what it leads to would be closed, and not itself."""
        seen = str(placeholder_source())
        for name in SEALABLE:
            here = f"{self.workspace}/{name}"
            if is_marked(here):
                yield "--ro-bind", seen, here
            elif name == _GIT and _is_repository(Path(here)):
                yield "--bind", here, here
                inner = (f"{here}/{name}" for name in _CLOSED_IN_GIT)
                yield from (("--ro-bind", path, path) for path in inner if _is_place(path))
            elif _is_place(here):
                yield "--ro-bind", here, here


def _is_place(path: str) -> bool:
    return os.path.lexists(path) and not os.path.islink(path)  # noqa: PTH114 - most are missing, and a Path costs more


def _is_repository(git: Path) -> bool:
    return not git.is_symlink() and git.is_dir() and os.path.lexists(git / "HEAD")


def _complete(git: Path) -> None:
    """Make what a repository lacks for its seals. Raises OSError."""
    make_folder(git / "hooks")
    make_file(git / "config", _PLAIN)
    if make_file(git / "commondir", ITSELF):
        mark(git / "commondir")
    config = b""
    with suppress(OSError):
        config = (git / "config").read_bytes()
    if _CONFIG_OF_WORKTREE in config.lower():
        make_file(git / "config.worktree", "")


def _links(git: Path) -> frozenset[str]:
    """Return links and pipes in a repository, which needs none, by their paths in it."""
    return frozenset(_odd(str(git))) if _is_repository(git) else frozenset()


def _odd(git: str) -> Iterator[str]:
    folders = [""]
    looked_at = 0
    while folders and looked_at < _ENTRIES:
        folder = folders.pop()
        with suppress(OSError), os.scandir(f"{git}/{folder}") as entries:
            for entry in entries:
                looked_at += 1
                path = f"{folder}/{entry.name}".lstrip("/")
                if entry.is_dir(follow_symlinks=False):
                    folders += [] if path in _NOT_SEARCHED else [path]
                elif entry.is_symlink() or stat.S_ISFIFO(entry.stat(follow_symlinks=False).st_mode):
                    yield path


def _lock_file(workspace: Path) -> Path:
    status = workspace.stat()
    return own_folder() / f"{status.st_dev:x}-{status.st_ino:x}"


def _is_there(path: Path, lock: int) -> bool:
    with suppress(FileNotFoundError):
        return path.stat().st_ino == os.fstat(lock).st_ino
    return False


def _write(lock: int, decided: dict[str, list[str]]) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(decided).encode("ascii"), 0)


def _read(lock: int) -> dict[str, list[str]] | None:
    """Read the decision; None where there is none, or it is incomplete."""
    with suppress(ValueError):
        decided: dict[str, list[str]] = json.loads(os.pread(lock, os.fstat(lock).st_size, 0))
        return decided
    return None
