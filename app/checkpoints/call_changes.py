"""Changes of a run's calls in its workspace: one look before a call that may write and one after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct, field

from app.checkpoints.workspace_scans import RunOwner, WorkspaceScans
from app.core.events import FileChanged, Notice
from app.workspace.changes import changed_files, events_of
from app.workspace.scanner import Look
from tools.process.process_tree import run_shielded

NO_CHECKPOINT = "What this run changes in the workspace cannot be undone: {why}."
TOO_LARGE = (
    "The workspace has more files than are compared, so that changes in its lower folders are not reported as such."
)
CallEvents = list[FileChanged | Notice]
AfterLooks = Callable[[str, Look | None, Look], None]
"""Take the two looks around a call (its id); the first is None if there was none."""


class _Begun(Struct):
    run: str
    look: Look | None = None
    why: str | None = None


class CallChanges(Struct):
    """The changes of one run's calls; none are looked for without `looks`."""

    workspace: Path | None = None
    looks: WorkspaceScans | None = None
    after_looks: AfterLooks | None = None
    _warned: bool = field(default=False)

    @asynccontextmanager
    async def around(self, owner: RunOwner, call: str, events: CallEvents) -> AsyncIterator[None]:
        """Look before and after a call that may write, also if it is cancelled.

        `events` are filled: with a notice if nothing of the run can be undone, and with what the call has changed.
        """
        if self.workspace is None or self.looks is None:
            yield
            return
        begun = _Begun(owner.run)
        try:
            await run_shielded(self._begin(self.looks, self.workspace, owner, call, begun))
            events += self._notices(begun)
            yield
        finally:
            await run_shielded(self._end(self.looks, self.workspace, begun, call, events))

    async def _begin(self, looks: WorkspaceScans, workspace: Path, owner: RunOwner, call: str, begun: _Begun) -> None:
        begun.look, begun.why = await looks.begin(owner, workspace, call)

    async def _end(self, looks: WorkspaceScans, workspace: Path, begun: _Begun, call: str, events: CallEvents) -> None:
        after = await looks.end(begun.run, workspace, call)
        if self.after_looks:
            self.after_looks(call, begun.look, after)
        if begun.look is None:
            return
        events += await asyncio.to_thread(self._events, looks, workspace, begun.look, after, call)
        if not (begun.look.is_whole and after.is_whole) and not self._warned:
            self._warned = True
            events.append(Notice("files", TOO_LARGE))

    def _events(self, looks: WorkspaceScans, workspace: Path, before: Look, after: Look, call: str) -> CallEvents:
        return events_of(changed_files(before, after, keeps=looks.keeps), workspace, call)

    def _notices(self, begun: _Begun) -> CallEvents:
        if begun.why is None:
            return []
        message = NO_CHECKPOINT.format(why=begun.why)
        if begun.look is not None and not begun.look.is_whole:
            self._warned = True
            message = f"{message} {TOO_LARGE}"
        return [Notice("no_checkpoint", message)]
