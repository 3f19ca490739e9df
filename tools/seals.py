"""What the owner's own programs run or obey (`tools.left_behind`), closed to the boxed commands of a workspace.

A mount closes what is there. What is not there needs a mount point: an empty folder, which git does not see, made for
the first command of a workspace and removed by the last; a lock that no box reaches tells which that is. A repository
is pinned, because its folder could else be renamed and another put in its place, and gets a `commondir` that leads to
itself, because another one would lead to another config.

Where there is no repository yet, commands make one in a folder of its own, `.git/made-in-sandbox`, which git outside
does not take for one. The last command moves it to its place, without hooks and with the harmless part of its config.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tools.left_behind import SEALED

MADE = "made-in-sandbox"
_GIT = ".git"
_ITSELF = ".\n"  # a `commondir` of a repository that is its own
_LOOKED_AT, _REPOSITORIES = 256, 8  # entries of the workspace, and repositories and submodules in it
_NOT_OURS = {
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOENT,
}  # what this server cannot write, its commands cannot either
_CONFIG_S = 5.0
_TOPS = ("/dev/shm", "/tmp")
_CONFIG_OF_WORKTREE = b"worktreeconfig"  # the setting by which git reads `config.worktree`
# What makes no program run, wherever it is said.
_HARMLESS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks)"
    r"|extensions\.(objectformat|refstorage|compatobjectformat)|init\.defaultbranch|user\.(name|email)"
    r"|remote\.[^\n]+\.(url|fetch)|branch\.[^\n]+\.(remote|merge)"
)
_PLAIN = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"

Mount = tuple[Path, list[str]]


@dataclass(frozen=True, slots=True)
class Seals:
    """Whoever starts a command calls `begin` before, and `end` when nothing of it runs any more."""

    workspace: Path

    def mounts(self) -> list[Mount]:
        """bubblewrap's words for each place, once `begin` has made what is missing."""
        found = [_closed(self.workspace / name) for name in SEALED if name != _GIT]
        return [mount for mounts in (*found, self._root_repository(), self._inner_repositories()) for mount in mounts]

    def _root_repository(self) -> list[Mount]:
        git = self.workspace / _GIT
        if not _may_be_made(git):
            return _repository(git)
        return [(git, ["--bind-try", str(git / MADE), str(git)])]

    def _inner_repositories(self) -> list[Mount]:
        """Of the folders in the workspace. They themselves can be moved, and others be put in their place."""
        with suppress(OSError), os.scandir(self.workspace) as entries:
            folders = [entry for entry in islice(entries, _LOOKED_AT) if entry.is_dir(follow_symlinks=False)]
            inner = (self.workspace / folder.name / _GIT for folder in folders)
            return [mount for git in islice(filter(Path.exists, inner), _REPOSITORIES) for mount in _repository(git)]
        return []

    def begin(self) -> int:
        """Make what is missing; a lock for `end`, which is -1 where there is no such folder. Raises OSError."""
        if not self.workspace.is_dir():
            return -1
        lock = _shared_lock(self.workspace)
        try:
            for name in SEALED:
                if not os.path.lexists(path := self.workspace / name):
                    _made(path)
            git = self.workspace / _GIT
            if _may_be_made(git):
                _made(git / MADE)
            elif git.is_dir() and not git.is_symlink():
                for folder in (git, *(config.parent for config in _inner_configs(git))):
                    _made(folder / "hooks")
                _written(git / "config", _PLAIN)
                _written(git / "commondir", _ITSELF)
                if _CONFIG_OF_WORKTREE in (git / "config").read_bytes().lower():
                    _written(git / "config.worktree", "")
        except BaseException:
            os.close(lock)
            raise
        return lock

    def end(self, lock: int) -> None:
        """Remove again what was made, unless other commands run in the workspace."""
        if lock < 0:
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return
        try:
            git = self.workspace / _GIT
            if not git.is_symlink() and (git / MADE).is_dir():
                _move_to_its_place(git)
            with suppress(OSError):
                if (git / "commondir").read_text() == _ITSELF:
                    (git / "commondir").unlink()
            for name in SEALED:
                with suppress(OSError):  # not empty, or never made
                    (self.workspace / name).rmdir()
        finally:
            _lock_file(self.workspace).unlink(missing_ok=True)
            os.close(lock)


def _may_be_made(git: Path) -> bool:
    """Whether there is no repository, nor a file or link that leads to one."""
    return not os.path.lexists(git) or (git.is_dir() and not git.is_symlink() and not os.path.lexists(git / "HEAD"))


def _closed(path: Path) -> list[Mount]:
    # A link cannot be a mount point: what it leads to would be closed, and the link itself could be replaced.
    return [] if path.is_symlink() else [(path, ["--ro-bind-try", str(path), str(path)])]


def _pinned(path: Path) -> Mount:
    """It stays writable, but can neither be renamed nor removed."""
    return path, ["--bind-try", str(path), str(path)]


def _repository(git: Path) -> list[Mount]:
    if not git.is_dir() or git.is_symlink():
        return _closed(git)
    # Worktrees are folders of the owner's elsewhere, each of which has a `commondir` in there.
    names = ("config", "config.worktree", "commondir", "hooks", "worktrees")
    return [_pinned(git), *(mount for name in names for mount in _closed(git / name)), *_submodules(git)]


def _submodules(git: Path) -> list[Mount]:
    found = _inner_configs(git)
    if not found:
        return []
    if len(found) > _REPOSITORIES:
        return _closed(git / "modules")
    pins = {folder for config in found for folder in config.relative_to(git).parents if folder.parts}
    closed = [mount for config in found for path in (config, config.parent / "hooks") for mount in _closed(path)]
    return [*(_pinned(git / folder) for folder in sorted(pins)), *closed]


def _inner_configs(git: Path) -> list[Path]:
    """Of submodules, whose names may have two parts; one more than there may be."""
    modules = git / "modules"
    if not modules.is_dir() or modules.is_symlink():
        return []
    return list(islice((path for depth in ("*", "*/*") for path in modules.glob(f"{depth}/config")), _REPOSITORIES + 1))


def _made(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise


def _written(file: Path, text: str) -> None:
    """A new file; one that is there stays."""
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno not in {errno.EEXIST, *_NOT_OURS}:
            raise
    else:
        with os.fdopen(opened, "w") as written:
            written.write(text)


def _lock_file(workspace: Path) -> Path:
    """Where no box sees it: these folders are others in a box."""
    folder = Path("/tmp", f".dragoman-seals-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "It belongs to another account", str(folder))
    status = workspace.stat()
    return folder / f"{status.st_dev:x}-{status.st_ino:x}"


def _shared_lock(workspace: Path) -> int:
    path = _lock_file(workspace)
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(lock).st_ino:
                return lock
        os.close(lock)  # of those before, who have just removed it


def _move_to_its_place(git: Path) -> None:
    """What commands have made of a repository, without what would run outside; HEAD last, which makes it one."""
    made = git / MADE
    if not (made / "HEAD").is_file() or (made / "HEAD").is_symlink():
        import shutil  # which a job's supervisor need not wait for

        shutil.rmtree(made, ignore_errors=True)
        return
    for name in ("commondir", "config.worktree", "worktrees", "modules"):
        _set_aside(made / name)
    if (made / "hooks").is_symlink() or any(path.suffix != ".sample" for path in (made / "hooks").glob("*")):
        _set_aside(made / "hooks")
    harmless = _harmless(made / "config")
    _set_aside(made / "config", keep=False)
    _written(made / "config", harmless)
    for path in sorted(made.iterdir(), key=lambda path: path.name == "HEAD"):
        if not os.path.lexists(git / path.name):
            path.rename(git / path.name)
    with suppress(OSError):
        made.rmdir()


def _set_aside(path: Path, *, keep: bool = True) -> None:
    """Under a name that git does not look for."""
    if os.path.lexists(path) and keep:
        path.rename(path.with_name(f"{path.name}.{MADE}"))
    elif os.path.lexists(path):
        path.unlink()


def _harmless(config: Path) -> str:
    """The part of a config that makes no program run."""
    if config.is_symlink() or not config.is_file():
        return _PLAIN
    import subprocess  # as above

    words = ["git", "config", "--no-includes", "--null", "--list", "--file", str(config)]
    env = {"PATH": os.defpath, "GIT_CONFIG_NOSYSTEM": "1", "HOME": os.devnull}
    try:
        listed = subprocess.run(words, cwd="/", env=env, capture_output=True, timeout=_CONFIG_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return _PLAIN
    return "".join(_lines(listed.decode(errors="replace"))) or _PLAIN


def _lines(listed: str) -> Iterator[str]:
    for entry in listed.split("\0"):
        name, _, value = entry.partition("\n")
        section, _, key = name.rpartition(".")
        section, _, inner = section.partition(".")
        if _HARMLESS.fullmatch(name) and "\n" not in value:
            title = f'{section} "{_escaped(inner)}"' if inner else section
            yield f'[{title}]\n\t{key} = "{_escaped(value)}"\n'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
