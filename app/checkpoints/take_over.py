"""The changes of a session with a folder of its own, and taking them over into the workspace that it was copied from.

It is an undo the other way round: each path has to be as it was when the folder was filled, and all become what they
are in the folder, or none. What was taken over is kept as a change of a person, which can be undone. Until then the
change has the session, by which an undo that was cut off, and is finished, is known to be this one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct, msgpack

from app.checkpoints.checkpoints import Checkpoints, Folder, Unscannable
from app.checkpoints.report import report_of
from app.checkpoints.scratch import STILL_COPIED
from app.checkpoints.undo import UndoRefused, can_restore, shown_path, undo
from app.checkpoints.workspace_scans import PERSON
from app.storage.checkpoints import Changed, CheckpointRow, Entry, ScratchRow
from app.workspace.scanner import differences
from tools.process.process_tree import run_shielded

NO_FOLDER = "This conversation works in the workspace itself, so there is nothing to take over."
OTHER_FILES = "Nothing was taken over: the files have changed since you looked. Look at the changes again."
NO_SUCH = "Nothing was taken over: {path} is not among the changes. Look at them again."
BUSY = "A call is at work in the workspace. Wait until it has ended, then take over."
REFUSED = "Nothing was taken over. {path}: {reason}{more}. Undo what stands against it, or copy these files by hand."
NOTHING = "There is nothing to take over."


class ScratchChanges(Struct, frozen=True):
    """Changes of the runs of a session in its folder; those that are `left_out` are not taken over."""

    row: ScratchRow
    taken: Sequence[Changed]
    left_out: Sequence[Changed]

    @property
    def fingerprint(self) -> str:
        """A digest of all changes, by which it is known what a person has looked at."""
        sides = [(one.path, _content(one.before), _content(one.after)) for one in self.taken]
        return sha256(msgpack.encode(sides)).hexdigest()


def _content(entry: Entry | None) -> tuple[str, int, bytes] | None:
    return (entry.kind, entry.mode, entry.digest) if entry else None


async def changes_of(checkpoints: Checkpoints, session: str, folder: Path) -> ScratchChanges:
    """Look at the folder of a session. Raises UndoRefused, StoreFailed."""
    row = await asyncio.to_thread(checkpoints.store.scratch, session)
    if row is None:
        raise UndoRefused(NO_FOLDER)
    if row.files:  # else they would count as removed
        raise UndoRefused(STILL_COPIED)
    held = checkpoints.folder(str(folder))
    async with checkpoints.looking(held):
        return await asyncio.to_thread(_changes, checkpoints, held, row)


def _changes(checkpoints: Checkpoints, folder: Folder, row: ScratchRow) -> ScratchChanges:
    try:
        now = checkpoints.look(folder)
    except Unscannable as unfit:
        raise UndoRefused(f"The folder of this conversation cannot be looked at, {unfit}.") from unfit
    others = [name.encode() for name in checkpoints.passed_by(row.origin)]  # folders of other principals
    parted: dict[bool, list[Changed]] = {True: [], False: []}
    for path, before, after in sorted(differences(row.base, now)):
        one = Changed(path, before, after)
        parted[can_restore(one) and path.split(b"/")[0] not in others].append(one)
    return ScratchChanges(row, parted[True], parted[False])


async def reported(checkpoints: Checkpoints, changes: ScratchChanges) -> dict[str, Any]:
    """Return the changes as JSON. Raises StoreFailed."""
    fields = await asyncio.to_thread(report_of, checkpoints.store, changes.taken, changes.left_out)
    return {"session": changes.row.session, "fingerprint": changes.fingerprint, **fields}


async def take_over(
    checkpoints: Checkpoints, changes: ScratchChanges, fingerprint: str, by: str, paths: Collection[str] = ()
) -> str:
    """Write changes, or those of some paths, into the workspace. Return the id of the change that a person can undo.

    Raises UndoRefused, StoreFailed.
    """
    if fingerprint != changes.fingerprint:
        raise UndoRefused(OTHER_FILES)
    chosen = [one for one in changes.taken if not paths or shown_path(one.path) in paths]
    if missing := {*paths} - {shown_path(one.path) for one in chosen}:
        raise UndoRefused(NO_SUCH.format(path=min(missing)))
    if not chosen:
        raise UndoRefused(NOTHING)
    return await run_shielded(_take_over(checkpoints, changes.row, chosen, by))


async def _take_over(checkpoints: Checkpoints, row: ScratchRow, changes: Sequence[Changed], by: str) -> str:
    folder = checkpoints.folder(row.origin)
    async with checkpoints.looking(folder):
        if folder.open_calls:
            raise UndoRefused(BUSY)
        return await asyncio.to_thread(_write, checkpoints, folder, row, changes, by)


def _write(checkpoints: Checkpoints, folder: Folder, row: ScratchRow, changes: Sequence[Changed], by: str) -> str:
    run = f"{PERSON}{secrets.token_hex(10)}"
    change = CheckpointRow(run, row.session, row.principal, row.origin, row.created)  # one that is taken over
    reverse = [Changed(one.path, one.after, one.before) for one in changes]
    try:
        return undo(checkpoints, folder, change, by, every=reverse).run
    except UndoRefused as refused:
        raise UndoRefused(_refusal(refused), refused.conflicts) from refused


def _refusal(refused: UndoRefused) -> str:
    if not refused.conflicts:
        return str(refused).replace("Nothing was undone", "Nothing was taken over")
    first, *more = refused.conflicts
    return REFUSED.format(path=first.path, reason=first.reason, more=f" and {len(more)} more" if more else "")
