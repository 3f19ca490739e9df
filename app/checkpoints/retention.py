"""Checkpoints go with their sessions: those that were deleted, by a person or for their age, are looked for."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from app.checkpoints.checkpoints import Checkpoints
from app.checkpoints.scratch import NEW_S, ScratchFolders
from app.checkpoints.workspace_scans import NO_SESSION
from app.storage.changes import StoreFailed
from app.storage.checkpoints import KEPT, OPEN, UNAVAILABLE, UNDONE, CheckpointStore, Entry

EVERY_S = 300.0
PERSON_KEPT_S = 7 * 86_400.0  # the changes of people, which belong to no session
logger = logging.getLogger(__name__)

OwnerOf = Callable[[str], Awaitable[str | None]]
"""Return the owner of a session, None if there is no such session. Raises StoreFailed."""


async def tidy_forever(checkpoints: Checkpoints, owner_of: OwnerOf) -> None:
    """Tidy every few minutes; a store that fails is tried again."""
    while True:
        await asyncio.sleep(EVERY_S)
        try:
            await tidy(checkpoints, owner_of)
        except StoreFailed as failure:
            logger.warning("checkpoints not tidied, retrying later: %s", failure)


async def tidy(checkpoints: Checkpoints, owner_of: OwnerOf) -> None:
    """Forget the checkpoints and folders of sessions that are gone, and old changes of people. Raises StoreFailed."""
    known = await checkpoints.sessions()
    gone = {session for session in known - {NO_SESSION} if await owner_of(session) is None}
    if gone:
        await checkpoints.forget(gone)
    if NO_SESSION in known:
        await checkpoints.forget({NO_SESSION}, before=time.time() - PERSON_KEPT_S)
    if checkpoints.scratch:
        folders = ScratchFolders(checkpoints.scratch, checkpoints)
        for session, (_, begun) in (await asyncio.to_thread(checkpoints.store.scratch_sessions)).items():
            if begun < time.time() - NEW_S and await owner_of(session) is None:
                await folders.forget(session)


async def vacuum(kept: CheckpointStore, owner_of: OwnerOf) -> None:
    """Leave nothing of sessions that are gone in the file, nor of files that are. Raises StoreFailed.

    No server uses it meanwhile.
    A workspace with a run whose call was cut off is left as it is: the next start compares it with its last look.
    """
    rows = kept.rows(KEPT, UNAVAILABLE, UNDONE)
    gone = {one for one in {row.session for row in rows} - {NO_SESSION} if await owner_of(one) is None}
    kept.forget([row.run for row in rows if row.session in gone])
    for path in set(kept.workspaces()) - {row.workspace for row in kept.rows(OPEN)}:
        seen = kept.entries(path) or {}
        kept.put(entries=(path, {name: one for name, one in seen.items() if _is_there(Path(path), name, one)}))
    kept.sweep()
    kept.vacuum()


def _is_there(workspace: Path, name: bytes, entry: Entry) -> bool:
    """Return True if what was seen there still is; of what has no content, something suffices."""
    try:
        found = (workspace / os.fsdecode(name)).lstat()
    except OSError:
        return False
    stamps = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
    return not entry.digest or stamps == (entry.inode, entry.modified, entry.changed)
