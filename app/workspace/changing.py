"""Changes of a workspace by a person: a new folder, a new name, a removal. Links are never followed."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from app.workspace.descent import entries_below, remove_below
from app.workspace.open_file import NotSent
from app.workspace.placing import check_name
from app.workspace.private_files import private_reason
from app.workspace.scanner import DEEPEST
from tools.base.outcome import ToolFailed
from tools.base.workspace import CREATE, directory, explained, inside
from tools.sandbox.owner_run_paths import owner_run_reason, owner_run_rule

MOST_REMOVED = 20_000  # files and folders at once
ROOT = "This is the workspace itself. Name a file or folder in it."
TOO_MANY = f"{{path}} holds more than {MOST_REMOVED:,} files. Remove its folders one by one, or with a command."
OF_OTHERS = "{path} is not changed: the folders of other people are in it."
TOO_DEEP = f"The path has more than {DEEPEST} folders in each other. Choose a shorter one."
IN_ITSELF = "A folder cannot be moved into itself."


class NameTaken(Exception):
    """There is something of that name already. The message names it."""

    def __init__(self, path: str) -> None:
        super().__init__(f"There is already something called {path}. Choose another name, or what is to become of it.")


def changeable(workspace: Path, path: str, *, people: str = "") -> tuple[str, ...]:
    """The parts of a path that a person may change. Raises ToolFailed, NotSent.

    `people` is the folder of other principals in the workspace of admins, empty in other workspaces.
    """
    parts = inside(workspace, path.lstrip("/"))
    if not parts:
        raise ToolFailed(ROOT)
    if people and parts[0].casefold() == people:
        raise NotSent(OF_OTHERS.format(path=people))
    if reason := owner_run_reason(parts):
        raise NotSent(f"{'/'.join(parts)} is not changed here: {reason}.")
    return parts


def check_names(parts: tuple[str, ...]) -> None:
    """Check names that are to be made. Raises UnsafeName, ToolFailed.

    Deeper folders would end the checkpoints of the whole workspace, whose looks go only so deep.
    """
    if len(parts) > DEEPEST:
        raise ToolFailed(TOO_DEEP)
    for part in parts:
        check_name(part)


def make_folder(workspace: Path, parts: tuple[str, ...]) -> None:
    """Make the folder and those above it. Blocks. Raises NameTaken, UnsafeName, ToolFailed."""
    check_names(parts)
    shown = "/".join(parts)
    with directory(workspace, parts[:-1], create=True) as parent, explained(shown):
        try:
            os.mkdir(parts[-1], dir_fd=parent)
        except FileExistsError:
            raise NameTaken(shown) from None


def move(workspace: Path, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    """Give a file or folder another name or place, over nothing. Blocks.

    Raises NameTaken, UnsafeName, NotSent, ToolFailed. What is not sent under its name gets no other, under which it
    would be.
    """
    check_names(new)
    if reason := private_reason(old):
        raise NotSent(f"{'/'.join(old)} is not moved: {reason}.")
    if new[: len(old)] == old and new != old:
        raise ToolFailed(IN_ITSELF)
    was, now = "/".join(old), "/".join(new)
    with directory(workspace, old[:-1]) as source, directory(workspace, new[:-1], create=True) as target:
        with explained(was):
            mode = os.stat(old[-1], dir_fd=source, follow_symlinks=False).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ToolFailed(f"{was} is neither a file nor a folder, so it is not moved.")
        with explained(now):
            _claim(target, new[-1], now, folder=stat.S_ISDIR(mode))
        try:
            with explained(was):
                os.rename(old[-1], new[-1], src_dir_fd=source, dst_dir_fd=target)
        except ToolFailed:
            with suppress(OSError):
                (os.rmdir if stat.S_ISDIR(mode) else os.unlink)(new[-1], dir_fd=target)
            raise


def _claim(target: int, name: str, shown: str, *, folder: bool) -> None:
    """Make something empty of the name: a rename replaces what is there, and nothing else may come in between."""
    try:
        if folder:
            os.mkdir(name, dir_fd=target)
        else:
            os.close(os.open(name, CREATE, 0o600, dir_fd=target))
    except FileExistsError:
        raise NameTaken(shown) from None


def remove(workspace: Path, parts: tuple[str, ...]) -> int:
    """Remove a file, a link, or a folder with all in it; return how many. Blocks. Raises ToolFailed, NotSent."""
    shown = "/".join(parts)
    with directory(workspace, parts[:-1]) as parent, explained(shown):
        if not stat.S_ISDIR(os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(parts[-1], dir_fd=parent)
            return 1
        count = 1
        for entry in entries_below(parent, parts[-1]):
            count += 1
            if (rule := owner_run_rule([entry.name])) and not rule.is_source:
                raise NotSent(f"{shown} is not removed, because {entry.name} is in it: {rule.why}.")
            if count > MOST_REMOVED:
                raise ToolFailed(TOO_MANY.format(path=shown))
        remove_below(parent, parts[-1])
        return count
