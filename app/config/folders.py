"""The folders that a server works in: made, locked, and whose they are."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.storage.changes import StoreFailed
from app.storage.data_dir import make_private, make_private_file
from app.storage.principals import Principal, folder_name
from tools.base.rights import Role

PEOPLE = "people"


class FolderUnsafe(Exception):
    """The folder of a principal could lead out of the workspace. The message says what to do."""


def workspace_of(root: Path, principal: Principal) -> Path:
    """Where someone's tools work: admins in the workspace itself, everybody else in a folder of their own there.

    Raises FolderUnsafe, Unusable.
    """
    if principal.role is Role.ADMIN:
        return root
    people = root / PEOPLE
    folder = people / folder_name(principal)
    for one in (people, folder):
        if one.is_symlink():  # a command of an admin can make it one, to anywhere outside of its sandbox
            message = (
                f"The folder people/{folder.name} of the workspace is reached by a link. An admin can remove that."
            )
            raise FolderUnsafe(message)
        made(one, "workspace")
    return folder


@contextmanager
def only_server(data_dir: Path) -> Iterator[None]:
    """Two servers on one data directory would each take the other's runs for lost ones. Raises StoreFailed."""
    try:
        make_private(data_dir)
        make_private_file(data_dir / "lock")
        lock = (data_dir / "lock").open("w")
    except OSError as error:
        raise Unusable(data_dir, "data_dir", error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"Another dragoman uses {data_dir}. Stop it, or give this one another DRAGOMAN_DATA_DIR."
            raise StoreFailed(message) from None
        yield


class Unusable(StoreFailed):
    """A folder that a setting names cannot be used."""

    def __init__(self, folder: Path, setting: str, error: OSError) -> None:
        advice = f"Set DRAGOMAN_{setting.upper()} to a folder of your own that can be written."
        super().__init__(f"The {setting} {folder} cannot be used: {error.strerror}. {advice}")


def made(folder: Path, setting: str) -> None:
    """Make the folder if it is not there. Raises Unusable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what a command leaves there is not for all
    except OSError as error:
        raise Unusable(folder, setting, error) from error
