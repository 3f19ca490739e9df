"""Checkpoints of a workspace, and runs that change it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from app.checkpoints.call_changes import CallChanges, CallEvents
from app.checkpoints.checkpoints import Checkpoints
from app.checkpoints.process_locks import ProcessLocks
from app.checkpoints.workspace_scans import RunOwner
from app.core.events import Notice
from app.storage.checkpoints import CheckpointStore
from app.workspace.scanner import ScanLimits


def checkpoints_in(
    folder: Path,
    store: CheckpointStore | None = None,
    store_bytes: int = 1 << 30,
    locks: ProcessLocks | None = None,
) -> Checkpoints:
    (folder / "work").mkdir(exist_ok=True)
    store, limits = store or CheckpointStore(folder / "checkpoints.db"), ScanLimits(file_bytes=100_000)
    passed_by = ["people"]
    return Checkpoints(store, limits, folder / "work", passed_by=passed_by, store_bytes=store_bytes, locks=locks)


@asynccontextmanager
async def around(checkpoints: Checkpoints, owner: RunOwner, workspace: Path) -> AsyncIterator[str | None]:
    """A call of the run. Yields the notice that nothing of it can be undone, if there is one."""
    events = CallEvents()
    async with CallChanges(workspace, checkpoints).around(owner, "c1", events):
        yield next((event.message for event in events if isinstance(event, Notice)), None)


async def change_in_run(checkpoints: Checkpoints, run: str, change: Callable[[], object]) -> None:
    async with around(checkpoints, RunOwner(run, f"session of {run}", "ann"), checkpoints.root):
        change()


def tree(work: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(work)): (
            path.lstat().st_mode,
            bytes(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(work.rglob("*"))
    }
