"""Opening the folders of a workspace one below the other, without following links."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.base.workspace import DIRECTORY, open_workspace


class OpenFolders:
    """The parent of the folder opened last stays open, because the next one is likely to be its neighbour."""

    def __init__(self, workspace: Path | str) -> None:
        self.root = open_workspace(workspace)
        self._above: tuple[str, ...] = ()
        self._parent = self.root

    def __enter__(self) -> OpenFolders:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        os.close(self.root)

    @contextmanager
    def open(self, parts: tuple[str, ...]) -> Iterator[int]:
        """Open a folder below the workspace, or the workspace itself. Raises OSError."""
        if not parts:
            yield self.root
            return
        if parts[:-1] != self._above:
            self._enter(parts[:-1])
        opened = os.open(parts[-1], DIRECTORY, dir_fd=self._parent)
        try:
            yield opened
        finally:
            os.close(opened)

    def _enter(self, above: tuple[str, ...]) -> None:
        self._leave()
        try:
            for part in above:
                opened = os.open(part, DIRECTORY, dir_fd=self._parent)
                self._close_parent()
                self._parent = opened
        except OSError:
            self._leave()
            raise
        self._above = above

    def _leave(self) -> None:
        self._close_parent()
        self._above, self._parent = (), self.root

    def _close_parent(self) -> None:
        if self._parent != self.root:
            os.close(self._parent)
