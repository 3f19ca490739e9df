"""Checkpoints of runs: the workspace is looked at before and after each call that may write.

Each look (`app.workspace.scanner`) finds what is different from the last one. That belongs to the runs that have a call
under way in this workspace: to one, or, marked as shared, to several. With none under way a person did it, or a
background job, and it is no run's. So an edit of a person between two calls of a run is not taken for the run's, and
whatever a program did in a call is found, however it did it. A look needs no more than the last one and the names of
the runs with an open call, both of which are stored: a server that was killed in the middle of a call takes the look
behind it when it starts. What that finds is marked as shared, because a person may have written since.

The last look at a workspace and the contents of its files are what a first look costs; a later one reads only files
whose times differ. What cannot be looked at within the limits has no checkpoint, and its run gets a notice.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from app.checkpoints.process_locks import ProcessLocks
from app.checkpoints.workspace_scans import MOST_FOLDERS, RunOwner, WorkspaceScans
from app.storage.changes import StoreFailed
from app.storage.checkpoints import (
    KEPT,
    OPEN,
    UNAVAILABLE,
    UNDONE,
    Changed,
    CheckpointRow,
    CheckpointStore,
    Entries,
    Entry,
    LookRow,
)
from app.workspace.scanner import Look, ScanLimits, Scanner, differences

CUT_OFF = "A look at the workspace behind a call failed: {why}."
INCOMPLETE = "a look at the workspace behind one of its calls is missing"
DELETED = "It was deleted, because all checkpoints together were too large (checkpoint_mb)."
IsDead = Callable[[str], Awaitable[bool]]
"""Return True for a run that no server is at work on. Raises StoreFailed."""
Difference = tuple[bytes, Entry | None, Entry | None]
logger = logging.getLogger(__name__)


class Unscannable(Exception):
    """The workspace is beyond a limit, or cannot be read. The message names the limit or the error."""


class Folder(Struct):
    """A workspace. `lock` is held for each look and each undo, by one of its `users`; others wait for it.

    `open_calls` counts calls under way, by run; while the lock is held those of other workers, too, which are `others`.
    """

    path: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    open_calls: dict[str, int] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    entries: Entries | None = None


class Checkpoints(WorkspaceScans):
    """One per server. What it looks at it keeps, so that it can be undone."""

    keeps = True

    def __init__(
        self,
        store: CheckpointStore,
        limits: ScanLimits,
        root: Path,
        *,
        passed_by: Collection[str] = (),
        store_bytes: int = 2 << 30,
        is_secret: Callable[[bytes], bool] = lambda _: False,
        scratch: Path | None = None,
        locks: ProcessLocks | None = None,
    ) -> None:
        super().__init__(limits, root, passed_by, is_secret)
        self.store = store
        self.scratch = scratch  # where folders of single sessions lie
        self._store_bytes = store_bytes
        self._locks = locks  # where other workers have the same checkpoints
        self._folders: dict[str, Folder] = {}
        self._looking = 0
        self._quiet = asyncio.Condition()  # no look is under way: what one has stored, nothing refers to yet
        self._has_grown = True
        self.unreported: set[str] = set()  # sessions whose model does not know of an undo
        self._missed: dict[str, str] = {}  # runs that the store could not take a look for, and why

    def holds(self, workspace: str) -> bool:
        """Return True for a workspace of this server."""
        return any(Path(workspace).is_relative_to(one) for one in (self.root, self.real_root, self.scratch) if one)

    async def begin(self, owner: RunOwner, workspace: Path, call: str = "") -> tuple[Look, str | None]:
        folder = self.folder(str(workspace))
        async with self.looking(folder):
            if owner.run in folder.others:  # the worker that had it has died in a call
                await asyncio.to_thread(self._recover, folder, {owner.run})
            if owner.run in folder.open_calls:
                folder.open_calls[owner.run] += 1
                return await asyncio.to_thread(self._peek, folder), None
            try:
                return await asyncio.to_thread(self._open, folder, owner, call)
            except StoreFailed as failure:
                logger.warning("no checkpoint of run %s: %s", owner.run, failure)
                self._missed[owner.run] = str(failure)
                return await asyncio.to_thread(self._peek, folder), str(failure).rstrip(".")

    async def end(self, run: str, workspace: Path, call: str = "") -> Look:
        folder = self.folder(str(workspace))
        async with self.looking(folder):
            if (calls := folder.open_calls.get(run, 0)) != 1:
                folder.open_calls |= {run: calls - 1} if calls else {}
                return await asyncio.to_thread(self._peek, folder)
            try:
                look = await asyncio.to_thread(self._close, folder, run, call)
            except StoreFailed as failure:
                logger.warning("the checkpoint of run %s is incomplete: %s", run, failure)
                self._missed[run] = str(failure)
                look = await asyncio.to_thread(self._peek, folder)
            finally:
                folder.open_calls.pop(run, None)
        if self._has_grown:
            await self._alone(self._bound)
        return look

    def _peek(self, folder: Folder) -> Look:
        return self.peek(folder.path, folder.entries)

    def folder(self, path: str) -> Folder:
        if path not in self._folders and len(self._folders) >= MOST_FOLDERS:
            idle = [one.path for one in self._folders.values() if not one.users and not one.open_calls]
            for known in idle[: len(self._folders) - MOST_FOLDERS + 1]:
                del self._folders[known]
        return self._folders.setdefault(path, Folder(path))

    @asynccontextmanager
    async def looking(self, folder: Folder) -> AsyncIterator[None]:
        """Hold a workspace for a look at it, or for more."""
        folder.users += 1
        try:
            async with folder.lock:
                async with self._quiet:  # before the lock of all workers: what tidies waits for that in here
                    self._looking += 1
                try:
                    async with self._apart(folder):
                        yield
                finally:
                    async with self._quiet:
                        self._looking -= 1
                        self._quiet.notify_all()
        finally:
            folder.users -= 1

    @asynccontextmanager
    async def _apart(self, folder: Folder) -> AsyncIterator[None]:
        """Keep other workers from a workspace, and see what they have done and do in it."""
        if self._locks is None:
            yield
            return
        async with self._locks.looking(folder.path):
            rows = await asyncio.to_thread(self.store.rows, OPEN)
            folder.entries = None
            folder.others = {row.run for row in rows if row.workspace == folder.path} - folder.open_calls.keys()
            folder.open_calls |= dict.fromkeys(folder.others, 1)
            try:
                yield
            finally:
                for run in folder.others:
                    folder.open_calls.pop(run, None)
                folder.others = set()

    def _open(self, folder: Folder, owner: RunOwner, call: str) -> tuple[Look, str | None]:
        """Look at the workspace and open a call of the run; else return why not, unless that is known."""
        self.store_missed()
        row = self.store.row(owner.run)
        if row and row.state == UNAVAILABLE:
            return self._peek(folder), None
        if row and row.state == OPEN:
            self.store.put([replace(row, state=UNAVAILABLE, note=INCOMPLETE)])
            return self._peek(folder), INCOMPLETE
        row = row or CheckpointRow(owner.run, owner.session, owner.principal, folder.path, time.time())
        look = self._take(folder, LookRow(folder.path, owner.run, call, before={}))
        if look.unfit:
            self.store.put([replace(row, state=UNAVAILABLE, note=look.unfit)])
            self._give_up(folder, look.unfit)
            return look, look.unfit
        self.store.put([replace(row, state=OPEN)])
        folder.open_calls[owner.run] = 1
        return look, None

    async def _alone(self, tidy: Callable[[], None]) -> None:
        """Tidy the store while nothing looks. What fails is tried again later."""
        async with self._quiet:
            await self._quiet.wait_for(lambda: not self._looking)
            try:
                async with self._locks.alone() if self._locks else nullcontext():
                    await asyncio.to_thread(tidy)
            except (StoreFailed, TimeoutError) as failure:
                logger.warning("the checkpoints were not tidied: %s", failure)

    def _close(self, folder: Folder, run: str, call: str) -> Look:
        look = self._take(folder, LookRow(folder.path, run, call, is_after=True, before={}))
        if look.unfit:
            self._give_up(folder, look.unfit)
        elif (row := self.store.row(run)) and row.state == OPEN:  # else it was given up
            self.store.put([replace(row, state=KEPT)])
        return look

    def _give_up(self, folder: Folder, why: str) -> None:
        """Mark the runs under way: their changes are not known."""
        rows = [row for run in folder.open_calls if (row := self.store.row(run))]
        self.store.put([replace(row, state=UNAVAILABLE, note=CUT_OFF.format(why=why)) for row in rows])

    def store_missed(self) -> None:
        """Mark the runs that a look is missing of, now that the store may be well again. Raises StoreFailed."""
        if self._missed:
            missed = dict(self._missed)
            rows = [row for run in missed if (row := self.store.row(run))]
            self.store.put([replace(row, state=UNAVAILABLE, note=CUT_OFF.format(why=missed[row.run])) for row in rows])
            for run in missed:
                self._missed.pop(run, None)

    def look(self, folder: Folder, own: LookRow | None = None, *, all_shared: bool = False) -> Entries:
        """Look at the workspace; what differs belongs to the runs under way. Raises Unscannable, StoreFailed."""
        look = self._take(folder, own, all_shared=all_shared)
        if look.unfit:
            raise Unscannable(look.unfit)
        return look.entries

    def _take(self, folder: Folder, own: LookRow | None = None, *, all_shared: bool = False) -> Look:
        """Look at the workspace and keep what differs, unless the look is unfit. `own` says what it is taken for."""
        known = folder.entries if folder.entries is not None else self.store.entries(folder.path)
        scanner = Scanner(known or {}, self._keep, self.limits, self.passed_by(folder.path), self.is_secret)
        look = scanner.run(self.place(folder.path))
        if look.unfit:  # the next look goes on from here
            folder.entries = None
            self.store.put(
                entries=(folder.path, {**(known or {}), **look.entries}),
                look=LookRow(folder.path, is_after=True, at=time.time()),
            )
            return look
        different = differences(known, look.entries) if known is not None else []
        shared = all_shared or len(folder.open_calls) > 1
        changes = {run: merged(self.store.changes(run), different, shared=shared) for run in folder.open_calls}
        is_new = known is None or look.has_read or bool(different)
        self.store.put(
            changes=changes if different else None,
            entries=(folder.path, look.entries) if is_new else None,
            look=self._kept_look(own or LookRow(folder.path), known, different),
        )
        folder.entries = look.entries
        return look

    def _kept_look(self, own: LookRow, known: Entries | None, different: Sequence[Difference]) -> LookRow | None:
        """Return what to keep of a look, from which earlier states of the workspace can be restored."""
        if not different and known is not None and own.before is None:
            return None
        self._has_grown = self._has_grown or bool(different)
        was_whole = self.store.last_was_whole(own.workspace)
        if was_whole is False or (known is None and was_whole):
            return replace(own, at=time.time(), before=None)
        if different:
            own = replace(own, before={path: before for path, before, _ in different})
        return replace(own, at=time.time()) if own.before is not None else None

    def _keep(self, contents: list[tuple[bytes, bytes]]) -> None:
        self._has_grown = True
        self.store.put_contents(contents)

    def _bound(self) -> None:
        """Keep the store within its limit: the oldest checkpoints go first, then looks at idle workspaces."""
        self._has_grown = False
        if self.store.size() <= self._store_bytes:
            return
        self.store.sweep()
        while rows := [row for row in self.store.rows(KEPT, UNDONE, UNAVAILABLE) if row.note != DELETED]:
            if self.store.size() <= self._store_bytes:
                return
            # The rows stay: a run that goes on would have only its later changes undone.
            oldest = [
                replace(row, state=UNDONE if row.state == UNDONE else UNAVAILABLE, note=DELETED)
                for row in rows[: 1 + len(rows) // 4]
            ]
            self.store.put(oldest, changes={row.run: [] for row in oldest})
            for path in {row.workspace for row in oldest}:
                self.store.forget_looks(path, {row.run for row in oldest})
            self.store.sweep()
        busy = {row.workspace for row in self.store.rows(OPEN)}
        for folder in [one for one in self._folders.values() if one.path not in busy]:
            if self.store.size() <= self._store_bytes:
                return
            folder.entries = None
            self.store.forget_workspace(folder.path)
            self.store.sweep()

    async def take_undone(self, session: str) -> list[CheckpointRow]:
        """Take the undone runs that the session's model does not know of: they count as reported from now on."""
        if session not in self.unreported and self._locks is None:  # else another worker may know of one
            return []
        self.unreported.discard(session)
        undone = await asyncio.to_thread(self.store.rows, UNDONE)
        rows = [row for row in undone if row.session == session and not row.reported]
        await asyncio.to_thread(self.store.put, [replace(row, reported=True) for row in rows])
        return rows

    async def recover(self, is_dead: IsDead | None = None) -> None:
        """Take the look behind each call that a server was killed in; with others, only if the run `is_dead`."""
        if self._locks:
            await asyncio.to_thread(self.store.put)  # makes the file, by the first worker before there are others
        undone = await asyncio.to_thread(self.store.rows, UNDONE)
        self.unreported |= {row.session for row in undone if not row.reported}
        rows = await asyncio.to_thread(self.store.rows, OPEN)
        dead = [row for row in rows if is_dead is None or await is_dead(row.run)]
        for path in {row.workspace for row in dead}:
            folder = self.folder(path)
            async with self.looking(folder):
                await asyncio.to_thread(self._recover, folder, {row.run for row in dead})

    def _recover(self, folder: Folder, dead: Collection[str]) -> None:
        rows = [row for row in self.store.rows(OPEN) if row.workspace == folder.path and row.run in dead]
        folder.open_calls |= {row.run: 1 for row in rows}
        try:
            self.look(folder, self._cut_off(folder, rows), all_shared=True)
            self.store.put([replace(row, state=KEPT) for row in rows])
        except Unscannable as unfit:
            self._give_up(folder, str(unfit))
        finally:
            for row in rows:
                folder.open_calls.pop(row.run)

    def _cut_off(self, folder: Folder, rows: Sequence[CheckpointRow]) -> LookRow | None:
        """Return the look behind the call that a server was killed in, if it was the only one."""
        if len(rows) != 1:
            return None
        calls = [look.call for look in self.store.looks(folder.path, run=rows[0].run)]
        return LookRow(folder.path, rows[0].run, calls[-1], is_after=True, before={}) if calls else None

    async def forget(self, sessions: Collection[str], before: float = math.inf) -> None:
        """Forget the checkpoints of sessions that are gone, or those from before that time.

        The last looks at their workspaces are taken again: they still have files that were deleted since.
        """
        rows = await asyncio.to_thread(self.store.rows, KEPT, UNAVAILABLE, UNDONE)
        for path in {row.workspace for row in rows if row.session in sessions and row.created < before}:
            folder = self.folder(path)
            async with self.looking(folder):
                if not folder.open_calls:
                    await asyncio.to_thread(self._take, folder)
        await self._alone(partial(self._forget, sessions, before))

    def _forget(self, sessions: Collection[str], before: float) -> None:
        rows = self.store.rows(KEPT, UNAVAILABLE, UNDONE)
        if runs := [row.run for row in rows if row.session in sessions and row.created < before]:
            self.store.forget(runs)
            self.store.sweep()

    async def forget_scratch(self, session: str, path: str) -> None:
        """Forget the folder of a session that is gone."""
        self._folders.pop(path, None)
        await self._alone(lambda: self._forget_scratch(session, path))

    def _forget_scratch(self, session: str, path: str) -> None:
        self.store.forget_scratch(session, path)
        self.store.sweep()

    async def sessions(self) -> set[str]:
        """Return the sessions that have checkpoints."""
        return {row.session for row in await asyncio.to_thread(self.store.rows, KEPT, UNAVAILABLE, UNDONE)}


def kept_by(looks: WorkspaceScans | None) -> Checkpoints | None:
    """Return the checkpoints, if the looks are kept."""
    return looks if isinstance(looks, Checkpoints) else None


def merged(changes: Iterable[Changed], different: Iterable[Difference], *, shared: bool) -> list[Changed]:
    """Return a run's changes with those of another look; what is as it was before the run is none."""
    by_path = {one.path: one for one in changes}
    for path, before, after in different:
        one = by_path.get(path)
        if one is None:
            by_path[path] = Changed(path, before, after, shared)
            continue
        is_own = before is one.after or (before is not None and before.is_same(one.after))
        by_path[path] = Changed(path, one.before, after, one.shared or shared or not is_own)
    return [one for one in by_path.values() if not _is_nothing(one)]


def _is_nothing(one: Changed) -> bool:
    if one.before is None or one.after is None:
        return one.before is one.after
    return one.before.is_same(one.after)
