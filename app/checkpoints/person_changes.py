"""Changes of a workspace by a person, kept like those of a run, so that they can be undone like one.

Each is a checkpoint of its own, with an id instead of a run and without a session.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from app.checkpoints.checkpoints import Checkpoints
from app.checkpoints.undo import can_restore, shown_path
from app.checkpoints.workspace_scans import NO_SESSION, PERSON, RunOwner
from app.storage.checkpoints import CheckpointStore
from tools.process.process_tree import run_shielded

Result = TypeVar("Result")


async def kept_change(
    checkpoints: Checkpoints | None, principal: str, workspace: Path, path: str, change: Callable[[], Result]
) -> tuple[Result, str | None]:
    """Make a change in a thread; return its result, and the id to undo it by, None where it cannot be undone.

    It is at `path` or below: what else differs, another program has written at the same time.
    """
    if checkpoints is None:
        return await asyncio.to_thread(change), None
    return await run_shielded(_kept(checkpoints, principal, workspace, path, change))


async def _kept(
    checkpoints: Checkpoints, principal: str, workspace: Path, path: str, change: Callable[[], Result]
) -> tuple[Result, str | None]:
    owner = RunOwner(f"{PERSON}{secrets.token_hex(10)}", NO_SESSION, principal)
    _, problem = await checkpoints.begin(owner, workspace)
    try:
        result = await asyncio.to_thread(change)
    finally:
        await checkpoints.end(owner.run, workspace)
    is_kept = not problem and await asyncio.to_thread(_is_kept, checkpoints.store, owner.run, os.fsencode(path))
    return result, owner.run if is_kept else None


def _is_kept(store: CheckpointStore, change: str, path: bytes) -> bool:
    """Leave what is at the path or below to a change; return whether all of it can be restored."""
    every = store.changes(change)
    found = [one for one in every if f"{shown_path(one.path)}/".startswith(f"{shown_path(path)}/")]
    if len(found) < len(every):
        store.put(changes={change: found})
    return bool(found) and all(map(can_restore, found))
