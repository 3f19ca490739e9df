"""Undoing a run: everything that it changed becomes what it was before, or nothing does.

First the workspace is looked at: each path has to be as the run has left it, else the undo is refused, and names what
is not. Then the checkpoint is marked as being undone, which is durable, and the paths are restored one by one, each in
one step (a file is written beside its place and renamed). If one cannot be, those before it are put back. After a kill
in between, the server's next start finishes it (`finish`): each path is either as the run had left it, or restored;
one that is neither was changed since, stays as it is, and is named.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from app.checkpoints.call_changes import NO_CHECKPOINT
from app.checkpoints.checkpoints import INCOMPLETE, Checkpoints, Folder, IsDead, Unscannable
from app.checkpoints.restore import Plan, plan_of, restore
from app.checkpoints.workspace_scans import NO_SESSION, PERSON
from app.storage.changes import StoreFailed
from app.storage.checkpoints import (
    FOLDER,
    KEPT,
    LEFT_OUT,
    OPEN,
    UNAVAILABLE,
    UNDOING,
    UNDONE,
    Changed,
    CheckpointRow,
    CheckpointStore,
)
from tools.base.outcome import ToolFailed
from tools.process.process_tree import run_shielded

logger = logging.getLogger(__name__)
MOST_NAMED = 100
SHARED = "something else may have changed it while the run was at work"
SINCE = "it has changed since"
BY_PERSON = "a person has changed it since, in the workspace panel"
LOST = "the run has removed it and it is not kept: what the run has made may be all that is left of it"
BUSY = "Another run is at work in this workspace. Wait until its call has ended, then undo."
ELSEWHERE = "The run worked in {workspace}, which is not in the workspace of this server any more."
NOT_CHANGED = "Nothing was undone: this run has not changed {path}, or it is undone already."
PART = "~"  # in the id of a checkpoint that was taken out of a run's, to be undone alone
NOTHING = "This run has changed nothing in the workspace, so there is nothing to undo."
FAILURES = (OSError, ToolFailed, StoreFailed)


class Conflict(Struct, frozen=True):
    """A path that keeps a run from being undone, and why."""

    path: str
    reason: str


class UndoRefused(Exception):
    """Nothing was undone. The message says why and what to do."""

    def __init__(self, message: str, conflicts: Sequence[Conflict] = ()) -> None:
        super().__init__(message)
        self.conflicts = conflicts


def shown_path(path: bytes) -> str:
    """Return a path as text; bytes that are none are escaped."""
    return path.decode("utf-8", "backslashreplace")


def can_restore(one: Changed) -> bool:
    return all(side is None or side.can_restore for side in (one.before, one.after))


def counts(one: Changed) -> bool:
    """Return True for a change that an undo restores, or is refused for."""
    return can_restore(one) or is_lost(one)


def is_lost(one: Changed) -> bool:
    """Return True for what the run has removed, and no look has kept; folders that programs make again are none."""
    return one.after is None and one.before is not None and one.before.kind == LEFT_OUT


async def undo_run(checkpoints: Checkpoints, run: str, by: str, paths: Collection[str] = ()) -> CheckpointRow:
    """Undo what a run that has ended has changed; what is undone already stays so. Raises UndoRefused, StoreFailed.

    `paths`: only these of its changes, all of them or none. They become a checkpoint of their own, which is undone.
    """
    row = await asyncio.to_thread(checkpoints.store.row, run)
    if row is None:
        raise UndoRefused(NOTHING)
    if not checkpoints.holds(row.workspace):
        raise UndoRefused(ELSEWHERE.format(workspace=row.workspace))
    return await run_shielded(_undo_in_turn(checkpoints, row, by, paths))


async def _undo_in_turn(checkpoints: Checkpoints, row: CheckpointRow, by: str, paths: Collection[str]) -> CheckpointRow:
    folder = checkpoints.folder(row.workspace)
    async with checkpoints.looking(folder):
        if folder.open_calls:
            raise UndoRefused(BUSY)
        ended = await asyncio.to_thread(_undo_by_state, checkpoints, folder, row.run, by, paths)
    if row.session:
        checkpoints.unreported.add(row.session)
    return ended


def _undo_by_state(
    checkpoints: Checkpoints, folder: Folder, run: str, by: str, paths: Collection[str]
) -> CheckpointRow:
    checkpoints.store_missed()
    row = checkpoints.store.row(run)
    if row is None or (row.state == KEPT and not any(map(counts, checkpoints.store.changes(run)))):
        raise UndoRefused(NOTHING)
    if row.state == UNDONE:
        return row
    if row.state == UNDOING:
        return finish(checkpoints, folder, row)
    if row.state in (UNAVAILABLE, OPEN):
        raise UndoRefused(NO_CHECKPOINT.format(why=(row.note or INCOMPLETE).rstrip(".")))
    return undo(checkpoints, folder, row, by, paths)


async def recover(checkpoints: Checkpoints, is_dead: IsDead | None = None) -> None:
    """Take up what a killed server has left: looks behind calls, and undos."""
    try:
        await checkpoints.recover(is_dead)
        for row in await asyncio.to_thread(checkpoints.store.rows, UNDOING):
            await undo_run(checkpoints, row.run, row.undone_by)
    except (StoreFailed, UndoRefused) as failure:
        logger.warning("checkpoints not recovered: %s", failure)


def undo(
    checkpoints: Checkpoints,
    folder: Folder,
    row: CheckpointRow,
    by: str,
    paths: Collection[str] = (),
    *,
    every: Sequence[Changed] | None = None,
) -> CheckpointRow:
    """Undo a run, or some of its paths, in a workspace that is held. Raises UndoRefused, StoreFailed.

    `every`: its changes, if it is not stored yet.
    """
    store = checkpoints.store
    known = store.changes(row.run) if every is None else every
    found = [one for one in known if not paths or shown_path(one.path) in paths]
    if missing := {*paths} - {shown_path(one.path) for one in found}:
        raise UndoRefused(NOT_CHANGED.format(path=min(missing)))
    changes = [one for one in found if can_restore(one)]
    lost = [Conflict(shown_path(one.path), LOST) for one in found if is_lost(one)]
    try:
        plan = plan_of(checkpoints.look(folder), [(one.path, one.after, one.before) for one in changes])
    except Unscannable as unfit:
        raise UndoRefused(f"Nothing was undone: the workspace cannot be looked at, {unfit}.") from unfit
    if conflicts := [*lost, *_conflicts(store, row, changes, plan)]:
        raise UndoRefused(_refusal(conflicts), conflicts)
    part = replace(row, run=f"{row.run}{PART}{secrets.token_hex(4)}") if paths else row
    rest = [one for one in known if one not in found]
    split = {row.run: rest, part.run: found} if paths or every is not None else None
    store.put([replace(part, state=UNDOING, undone_by=by)], changes=split)
    try:
        restore(store, checkpoints.place(row.workspace), plan.steps, part.run)
    except FAILURES as error:
        _put_back(checkpoints, folder, part, changes)
        if paths:
            store.put(changes={row.run: known, part.run: []})
            store.forget([part.run])
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UndoRefused(f"Nothing was undone, because a file could not be restored: {reason}") from error
    return _ended(checkpoints, folder, part, by)


def finish(checkpoints: Checkpoints, folder: Folder, row: CheckpointRow) -> CheckpointRow:
    """Finish an undo that was cut off. Raises UndoRefused, StoreFailed."""
    store = checkpoints.store
    changes = [(one.path, one.after, one.before) for one in store.changes(row.run) if can_restore(one)]
    try:
        plan = plan_of(checkpoints.look(folder), changes)
        restore(store, checkpoints.place(row.workspace), plan.steps, row.run)
    except (Unscannable, *FAILURES) as error:
        raise UndoRefused(f"An undo that was cut off cannot be finished: {error}") from error
    return _ended(checkpoints, folder, row, row.undone_by, plan.others)


def _put_back(checkpoints: Checkpoints, folder: Folder, row: CheckpointRow, changes: Sequence[Changed]) -> None:
    """Make what was restored what the run had left. What fails, `finish` takes up. Raises UndoRefused."""
    try:
        plan = plan_of(checkpoints.look(folder), [(one.path, one.before, one.after) for one in changes])
        restore(checkpoints.store, checkpoints.place(row.workspace), plan.steps, row.run)
    except (Unscannable, *FAILURES) as error:
        raise UndoRefused(f"The undo was cut off, and is finished when it is asked for again: {error}") from error
    if _is_take_over(row):
        checkpoints.store.forget([row.run])
    else:
        checkpoints.store.put([replace(row, state=KEPT)])


def _ended(
    checkpoints: Checkpoints, folder: Folder, row: CheckpointRow, by: str, others: Sequence[bytes] = ()
) -> CheckpointRow:
    if _is_take_over(row):
        ended = _taken_over(checkpoints.store, row, frozenset(others))
    else:
        named = ", ".join(map(shown_path, others[:MOST_NAMED]))
        note = f"Not restored, because changed since: {named}" if named else ""
        ended = replace(row, state=UNDONE, undone=time.time(), undone_by=by, note=note)
        checkpoints.store.put([ended])
    with suppress(Unscannable):  # the next run looks again
        checkpoints.look(folder)
    return ended


def _is_take_over(row: CheckpointRow) -> bool:
    """Return True for a change of a person that is of a session: what was in its folder is written."""
    return row.run.startswith(PERSON) and row.session != NO_SESSION


def _taken_over(store: CheckpointStore, row: CheckpointRow, others: Collection[bytes]) -> CheckpointRow:
    """Keep what was taken over as a change that can be undone; the session's folder is compared with it from now on."""
    taken = [Changed(one.path, one.after, one.before) for one in store.changes(row.run) if one.path not in others]
    scratch = store.scratch(row.session)
    if scratch:  # others may have been taken over since the changes were read
        base = {**scratch.base, **{one.path: one.after for one in taken}}
        scratch = replace(scratch, base={path: entry for path, entry in base.items() if entry is not None})
    kept = replace(row, session=NO_SESSION, state=KEPT, created=time.time(), undone_by="")
    store.put([kept], changes={row.run: taken}, scratch=scratch)
    return kept


def _conflicts(
    store: CheckpointStore, row: CheckpointRow, changes: Iterable[Changed], plan: Plan
) -> Iterable[Conflict]:
    """Name what is not as the run has left it. Folders are shared, and go only when they are empty."""
    others = frozenset(plan.others)
    for one in changes:
        is_folder = all(side is None or side.kind == FOLDER for side in (one.before, one.after))
        if one.shared and not is_folder:
            yield Conflict(shown_path(one.path), SHARED)
        elif one.path in others or (one.path in plan.done and not is_folder):
            later = store.runs_that_changed(row.workspace, one.path, row.created)
            yield Conflict(shown_path(one.path), _since(later))


def _since(later: Sequence[str]) -> str:
    """Return the reason of a conflict, with the last of the runs that have changed the path since."""
    if not later:
        return SINCE
    return BY_PERSON if later[-1].startswith(PERSON) else f"run {later[-1]} has changed it since"


def _refusal(conflicts: Sequence[Conflict]) -> str:
    first = conflicts[0]
    more = f" and {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
    return f"Nothing was undone. {first.path}: {first.reason}{more}. Restore what you need by hand from the diff."
