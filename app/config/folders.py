"""The folders of a server: created, locked, and one for each principal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from app.storage.changes import StoreFailed
from app.storage.data_dir import make_private, make_private_file
from app.storage.principals import Principal, folder_name
from tools.base.file_lock import try_lock
from tools.base.outcome import ToolFailed
from tools.base.rights import Role
from tools.base.workspace import OwnFolder, directory, inside

PEOPLE = "people"
AGAIN_S = 0.1  # between two tries of a lock


class FolderUnsafe(Exception):
    """The folder of a principal is a link, which may lead out of the workspace. The message says what to do."""


def workspace_of(root: Path, principal: Principal) -> Path:
    """The working folder of a principal's tools: the workspace itself for admins, a folder in it for others.

    Raises FolderUnsafe, FolderUnusable.
    """
    if principal.role is Role.ADMIN:
        return root
    people = root / PEOPLE
    folder = people / folder_name(principal)
    for one in (people, folder):
        if one.is_symlink():  # a command of an admin can create one, with any target outside of its sandbox
            message = f"The folder people/{folder.name} of the workspace is a symbolic link. An admin can remove it."
            raise FolderUnsafe(message)
        make_folder(one, "workspace")
    return folder


@lru_cache(16)
def on_one_file_system(first: Path, second: Path) -> bool:
    """Return True if both are there, and neither can hang while the other does not."""
    try:
        return first.stat().st_dev == second.stat().st_dev
    except OSError:
        return False


def folder_below(workspace: Path, name: str) -> OwnFolder:
    """Return the folder of a conversation in its principal's workspace, made if it is missing. Raises FolderUnsafe."""
    root = workspace.resolve()
    try:
        with directory(root, inside(root, name), create=True):
            return OwnFolder.below(root, name)
    except ToolFailed as failed:
        raise FolderUnsafe(f"The folder {name} of this conversation cannot be used. {failed}") from failed


@contextmanager
def lock_data_dir(data_dir: Path, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock of the data directory, which is for one server at a time. Raises StoreFailed.

    At its start a server goes on with all runs that have not ended. Blocks for `wait_s` at most.
    """
    until = time.monotonic() + wait_s
    try:
        make_private(data_dir)
        make_private_file(data_dir / "lock")
        lock = (data_dir / "lock").open("w")
    except OSError as error:
        raise FolderUnusable(data_dir, "data_dir", error) from error
    with lock:
        while not try_lock(lock):
            if time.monotonic() > until:
                message = f"Another dragoman uses {data_dir}. Stop it, or give this one another DRAGOMAN_DATA_DIR."
                raise StoreFailed(message)
            time.sleep(AGAIN_S)
        yield


class FolderUnusable(StoreFailed):
    """A folder that a setting names cannot be used."""

    def __init__(self, folder: Path, setting: str, error: OSError) -> None:
        advice = f"Set DRAGOMAN_{setting.upper()} to a writable folder of your own."
        super().__init__(f"The {setting} {folder} cannot be used: {error.strerror}. {advice}")


class FolderGone(FolderUnusable):
    """The folder that a session works in is not there."""

    def __init__(self, why: str) -> None:
        StoreFailed.__init__(self, why)


def make_folder(folder: Path, setting: str) -> None:
    """Create the folder if it does not exist. Raises FolderUnusable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # files of commands are not for other accounts
    except OSError as error:
        raise FolderUnusable(folder, setting, error) from error
