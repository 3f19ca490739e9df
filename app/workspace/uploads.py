"""A file that a person puts into a workspace: taken piece by piece, and placed whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal

from app.workspace.changing import NameTaken, check_names
from app.workspace.placing import UNNAMED_UNSUPPORTED, numbered_names
from tools.base.outcome import ToolFailed
from tools.base.workspace import CREATE, directory, explained

Conflict = Literal["refuse", "replace", "keep_both"]
_UNNAMED = os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC


class Upload:
    """Its bytes have no name until `place`, or a hidden one where the file system knows no files without. All blocks.

    Raises UnsafeName, ToolFailed.
    """

    def __init__(self, workspace: Path, parts: tuple[str, ...]) -> None:
        check_names(parts)
        self.name, self._above = parts[-1], parts[:-1]
        self._shown = "/".join(parts)
        self._temporary = ""
        with ExitStack() as stack:
            self._parent = stack.enter_context(directory(workspace, self._above, create=True))
            self._handle = stack.enter_context(os.fdopen(self._open(), "wb", buffering=0))
            self._stack = stack.pop_all()

    def _open(self) -> int:
        try:
            return os.open(".", _UNNAMED, 0o666, dir_fd=self._parent)
        except OSError as error:
            if error.errno not in UNNAMED_UNSUPPORTED:
                raise ToolFailed(f"{self._shown} cannot be written: {error.strerror}.") from error
        self._temporary = f".{secrets.token_hex(8)}.tmp"
        with explained(self._shown):
            return os.open(self._temporary, CREATE, 0o666, dir_fd=self._parent)

    def write(self, data: bytes) -> None:
        with explained(self._shown):
            left = memoryview(data)
            while left:
                left = left[self._handle.write(left) :]

    def place(self, conflict: Conflict) -> tuple[str, bool]:
        """Give it its name; return the path, and whether it has replaced a file. Raises NameTaken, ToolFailed."""
        if conflict == "replace" and (mode := self._mode_there()) is not None:
            with explained(self._shown):
                os.fchmod(self._handle.fileno(), mode)
                self._replace()
            return self._shown, True
        for name in numbered_names(self.name) if conflict == "keep_both" else [self.name]:
            with explained(self._shown):
                if self._link(name):
                    return "/".join((*self._above, name)), False
        raise NameTaken(self._shown)

    def _mode_there(self) -> int | None:
        try:
            found = os.stat(self.name, dir_fd=self._parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            raise ToolFailed(f"{self._shown} is no regular file, so it is not replaced. Choose another name.")
        return stat.S_IMODE(found.st_mode)

    def _replace(self) -> None:
        if not self._temporary:
            temporary = f".{secrets.token_hex(8)}.tmp"
            self._link(temporary)
            self._temporary = temporary
        os.rename(self._temporary, self.name, src_dir_fd=self._parent, dst_dir_fd=self._parent)
        self._temporary = ""

    def _link(self, name: str) -> bool:
        """Give the file this name, too; return False if there is something of that name."""
        parent = self._parent
        try:
            if self._temporary:
                _link_or_claim(self._temporary, name, parent)
            else:
                os.link(f"/proc/self/fd/{self._handle.fileno()}", name, dst_dir_fd=parent, follow_symlinks=True)
        except FileExistsError:
            return False
        return True

    def close(self) -> None:
        """Close it; what has no name then is gone."""
        if self._temporary:
            with suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._parent)
        self._stack.close()


def _link_or_claim(temporary: str, name: str, parent: int) -> None:
    """Link a file, or rename it over an empty one where the file system knows no links. Raises FileExistsError."""
    try:
        os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno not in UNNAMED_UNSUPPORTED:
            raise
        os.close(os.open(name, CREATE, 0o666, dir_fd=parent))
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
