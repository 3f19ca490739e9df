"""Looks at workspaces for the calls of runs, where nothing is kept for an undo."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from msgspec import Struct

from app.storage.checkpoints import Entries
from app.workspace.scanner import Look, ScanLimits, Scanner
from tools.base.workspace import OwnFolder

MOST_FOLDERS = 8  # workspaces whose last look is held in memory
# The change of a person is kept like a run: its id begins with this, and it has no session.
PERSON, NO_SESSION = "chg_", ""


class RunOwner(Struct, frozen=True):
    """A run, as its checkpoint names it."""

    run: str
    session: str
    principal: str


class WorkspaceScans:
    """Looks before and after calls. `root` is the workspace of admins, in which `passed_by` are folders of others."""

    keeps: bool = False  # contents, so that an undo restores them

    def __init__(
        self,
        limits: ScanLimits,
        root: Path,
        passed_by: Collection[str] = (),
        is_secret: Callable[[bytes], bool] = lambda _: False,
    ) -> None:
        self.root, self.real_root = root, root.resolve()
        self.limits = limits
        self.is_secret = is_secret
        self._passed_by = passed_by
        self._last: dict[str, Entries] = {}  # looks at the workspaces: what is as it was is the same entry again

    async def begin(self, owner: RunOwner, workspace: Path, call: str = "") -> tuple[Look, str | None]:
        """Look before a call that may write. Returns why its run has no checkpoint as well, once in a run."""
        return await asyncio.to_thread(self._look_again, str(workspace)), None

    async def end(self, run: str, workspace: Path, call: str = "") -> Look:
        """Look after the call."""
        return await asyncio.to_thread(self._look_again, str(workspace))

    def _look_again(self, path: str) -> Look:
        look = self.peek(path, self._last.get(path))
        if path not in self._last and len(self._last) >= MOST_FOLDERS:
            self._last.clear()
        self._last[path] = look.entries
        return look

    def peek(self, path: str, known: Entries | None = None) -> Look:
        """Look at a workspace without reading files. Blocks."""
        return Scanner(known or {}, None, self.limits, self.passed_by(path), self.is_secret).run(self.place(path))

    def place(self, path: str) -> Path:
        """Return a workspace to be opened; one below that of admins is not opened through a link."""
        return OwnFolder(path) if path.startswith(f"{self.real_root}/") else Path(path)

    def passed_by(self, path: str) -> Collection[str]:
        return self._passed_by if Path(path) == self.root else ()
