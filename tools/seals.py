"""What the owner's own programs run or obey (`tools.left_behind`), closed to the boxed commands of a workspace.

A mount closes what is there. What is not there needs a mount point: an empty folder (`tools.placeholders`), made for
the first command of a workspace and removed by the last; a lock that no box reaches tells which that is. A repository
is pinned, because its folder could else be renamed and another put in its place, and gets a `commondir` that leads to
itself, because another one would lead to another config.

Where there is no repository yet, commands make one in a folder of its own, `.git/made-in-sandbox`, which git outside
does not take for one. The last command moves it to its place, without hooks and with the harmless part of its config.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tools.left_behind import SEALABLE, SEALED
from tools.placeholders import (
    is_marked,
    make_file,
    make_folder,
    make_placeholder,
    mark,
    own_folder,
    remove_placeholder,
    seen_instead,
)

MADE = "made-in-sandbox"
_GIT = ".git"
ITSELF = ".\n"  # a `commondir` of a repository that is its own
_LOOKED_AT, _REPOSITORIES = 256, 8  # entries of the workspace, and repositories and submodules in it
_CONFIG_S = 5.0
_CONFIG_OF_WORKTREE = b"worktreeconfig"  # the setting by which git reads `config.worktree`
# What makes no program run, wherever it is said.
HARMLESS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks)"
    r"|core\.(abbrev|autocrlf|eol|longpaths|quotepath|safecrlf|untrackedcache)|advice\.\w+|color\.ui|fetch\.prune"
    r"|extensions\.(objectformat|refstorage|compatobjectformat)|init\.defaultbranch|user\.(name|email)"
    r"|remote\.[^\n]+\.(url|fetch|prune|pushurl|tagopt)|branch\.[^\n]+\.(remote|merge|rebase|description)"
    r"|pull\.(ff|rebase)|push\.(autosetupremote|default|followtags)"
)
_PLAIN = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"

Mount = tuple[Path, list[str]]


@dataclass(frozen=True, slots=True)
class Seals:
    """Whoever starts a command calls `begin` before, and `end` when nothing of it runs any more.

    `names` are of the places that cannot be made either; others are closed where they are.
    """

    workspace: Path
    names: tuple[str, ...] = SEALED

    def mounts(self) -> list[Mount]:
        """bubblewrap's words for each place, once `begin` has made what is missing."""
        found = [*self._closed_places(), self._root_repository(), self._inner_repositories()]
        return [mount for mounts in found for mount in mounts]

    def _closed_places(self) -> Iterator[list[Mount]]:
        may_write = os.access(self.workspace, os.W_OK)
        for name in filter(_GIT.__ne__, SEALABLE):
            here = f"{self.workspace}/{name}"  # most are missing, and a Path costs more than to look for one
            if os.path.lexists(here) and not is_marked(here):
                yield _closed(Path(here))
            elif name in self.names and may_write:
                yield [(Path(here), ["--ro-bind", str(seen_instead()), here])]

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
            for name in filter(_GIT.__ne__, self.names):
                make_placeholder(self.workspace / name)
            git = self.workspace / _GIT
            if _may_be_made(git):
                make_placeholder(git, MADE)
            elif git.is_dir() and not git.is_symlink():
                for folder in (git, *(config.parent for config in _inner_configs(git))):
                    make_folder(folder / "hooks")
                make_file(git / "config", _PLAIN)
                if make_file(git / "commondir", ITSELF):
                    mark(git / "commondir")
                if _CONFIG_OF_WORKTREE in (git / "config").read_bytes().lower():
                    make_file(git / "config.worktree", "")
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
            self._restore_repository()
            for name in SEALABLE:
                remove_placeholder(f"{self.workspace}/{name}")
        finally:
            _lock_file(self.workspace).unlink(missing_ok=True)
            os.close(lock)

    def _restore_repository(self) -> None:
        git = self.workspace / _GIT
        if git.is_symlink():
            return
        if (git / MADE).is_dir():
            ours = is_marked(git)
            _move_to_its_place(git)
            if ours and not any(git.iterdir()):
                git.rmdir()
        if is_marked(git / "commondir"):
            with suppress(OSError):
                (git / "commondir").unlink()


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


def _lock_file(workspace: Path) -> Path:
    folder = own_folder()
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
    make_file(made / "config", harmless)
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
        if HARMLESS.fullmatch(name) and "\n" not in value:
            title = f'{section} "{_escaped(inner)}"' if inner else section
            yield f'[{title}]\n\t{key} = "{_escaped(value)}"\n'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
