"""Detection of programs that git would run for a repository of the workspace: hooks, filters, file monitors.

No command and no file tool puts that there unasked, but a repository can come with it, in an archive or on a shared
disk. What git obeys is in too many places to switch it all off (`filter.NAME.clean` has any name), so this knows what
is plain, and calls everything else a program. Only for a sandbox: it decides whether a call needs approval.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tools.base.patterns import lazy_pattern
from tools.sandbox.sealed_paths import ITSELF
from tools.shell_policy.plain_commands import Doubt, Words, simple_commands
from tools.shell_policy.read_only_programs import without_place

# Settings that make no program run, in whatever file they are.
_HARMLESS = lazy_pattern(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks)"
    r"|core\.(abbrev|autocrlf|eol|longpaths|quotepath|safecrlf|untrackedcache)|advice\.\w+|color\.ui|fetch\.prune"
    r"|extensions\.(objectformat|refstorage|compatobjectformat)|init\.defaultbranch|user\.(name|email)"
    r"|remote\.[^\n]+\.(url|fetch|prune|pushurl|tagopt)|branch\.[^\n]+\.(remote|merge|rebase|description)"
    r"|pull\.(ff|rebase)|push\.(autosetupremote|default|followtags)"
)
_CONFIG_BYTES, _INDEX_BYTES = 1 << 16, 1 << 24
_HOOKS = 64  # entries that are looked at: git's samples are 14
_STEPS = 3  # `cd` and `-C` of a command that are followed
_SECTION = lazy_pattern(r'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\]|\\.)*)")?\]')
_ENTRY = lazy_pattern(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=.*)?")
# In an index: the mode of a submodule, whose own settings git obeys, and the mark of a sparse index.
_SUBMODULE, _SPARSE = b"\x00\x00\xe0\x00", b"sdir"


def runs_nothing(command: str, workspace: Path) -> bool:
    """Return whether git in a command would run no program that a repository names. Total; may block."""
    if "git" not in command:
        return True
    commands = simple_commands(command)
    if isinstance(commands, Doubt):
        return False
    if all(words[0] != "git" for words in commands):
        return True
    try:
        root = workspace.resolve()
        return all(_is_plain_up_to(root, place) for place in _places(commands, root))
    except (OSError, ValueError, RuntimeError):  # not to be read, no name of a file, a circle of links
        return False


def _places(commands: tuple[Words, ...], root: Path) -> list[Path | None]:
    """Return every folder in which a git of the command may start; None for an unknown one."""
    places: list[Path | None] = [root]
    steps = [step for words in commands for step in (words[1:] if words[0] == "cd" else without_place(words)[1])]
    if len(steps) > _STEPS or any(step.startswith("-") or ".." in Path(step).parts for step in steps):
        return [None]  # and where `..` leads, shells and systems do not agree behind a link
    for step in steps:  # each may fail, or be made in a shell of its own
        places += [place / step for place in places if place]
    return places


def _is_plain_up_to(root: Path, place: Path | None) -> bool:
    """Return whether all repositories that git finds from there upwards to the workspace are plain."""
    if place is None:
        return False
    if not place.is_dir():
        return True  # git is not started there
    real = place.resolve()
    return real.is_relative_to(root) and all(
        _is_plain(folder) for folder in (real, *real.parents) if folder.is_relative_to(root)
    )


def _is_plain(folder: Path) -> bool:
    git = folder / ".git"
    if not os.path.lexists(git):
        return not (os.path.lexists(folder / "HEAD") and os.path.lexists(folder / "objects"))  # a bare repository
    if git.is_symlink() or not git.is_dir():
        return False
    if os.path.lexists(git / "commondir") and _read(git / "commondir", _CONFIG_BYTES) != ITSELF.encode():
        return False
    return _has_no_hooks(git / "hooks") and _has_no_submodules(git) and _is_harmless(git / "config")


def _has_no_hooks(folder: Path) -> bool:
    if not os.path.lexists(folder):
        return True
    if folder.is_symlink() or not folder.is_dir():
        return False
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, _HOOKS)]
    return len(names) < _HOOKS and all(name.endswith(".sample") for name in names)


def _has_no_submodules(git: Path) -> bool:
    if next(git.glob("sharedindex.*"), None):
        return False
    index = _read(git / "index", _INDEX_BYTES) if os.path.lexists(git / "index") else b""
    return index is not None and _SUBMODULE not in index and _SPARSE not in index


def _is_harmless(config: Path) -> bool:
    if not os.path.lexists(config):
        return True
    text = _read(config, _CONFIG_BYTES)
    return text is not None and all(_HARMLESS.fullmatch(name) for name in _names(text.decode("latin-1")))


def _names(config: str) -> Iterator[str]:
    """Yield the settings of a config as `section.key`; an empty name for a line that is not plain."""
    section = ""
    for line in (line.strip(" \t\r") for line in config.split("\n")):
        if not line or line[0] in "#;":
            continue
        if title := _SECTION.fullmatch(line):
            section = title[1].lower() + (f".{title[2]}" if title[2] is not None else "")
        elif (entry := _ENTRY.fullmatch(line)) and not line.endswith("\\"):  # which goes on in the next line
            yield f"{section}.{entry[1].lower()}"
        else:
            yield ""


def _read(file: Path, limit: int) -> bytes | None:
    """Read a file; None when it is no regular file, or larger than `limit`."""
    opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as read:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        return read.read(limit)
