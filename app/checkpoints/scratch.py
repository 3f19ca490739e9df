"""Folders of single sessions: a workspace as it was at one moment of a run, in which all runs of the session work.

The moment is found by looks: from the newest one, what later looks have found is taken back, one by one, to the last
look that was taken by then. The folder is filled with the contents that the looks have kept, before a tool works in
it; until then a marker lies beside it, so that a server which was killed meanwhile begins again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from msgspec import Struct
from msgspec.structs import replace

from app.checkpoints.checkpoints import DELETED, Checkpoints, Folder, Unscannable
from app.core.events import Notice
from app.storage.changes import StoreFailed
from app.storage.checkpoints import FILE, FOLDER, LINK, MOST_ASKED, UNAVAILABLE, Entries, Entry, ScratchRow
from app.workspace.descent import remove_below
from app.workspace.open_folders import OpenFolders
from app.workspace.scanner import BATCH
from tools.base.patterns import lazy_pattern
from tools.base.workspace import CREATE

SCRATCH = "forks"  # in the data directory, which no command sees but its own folder
OWN = "ses_own"  # begins the ids of sessions that never work in the workspace itself
NAME = lazy_pattern(r"ses_[0-9a-z]{1,60}")
MOST_FOLDERS = 16  # of a principal
NEW_S = 600.0  # in which a folder may be without its session
QUIETLY = 1_000  # files that are copied without a word
NOTICE_EVERY = 3_000
FORK = "fork"  # the code of notices
INSTEAD = "Fork the conversation before or after the run instead: it goes on with the files as they are now."
TOO_OLD = f"The run is from before the files of single calls were kept. {INSTEAD}"
UNKNOWN = f"The files of that moment are not known any more: a look at the workspace is missing. {INSTEAD}"
OFF = "Checkpoints are off, so no files are kept. Start the server with checkpoints = true, and fork later runs."
TOO_MANY = "You have {most} conversations with a folder of their own, which is the most. Delete one of these first."
ELSEWHERE = "The run worked in {workspace}, which is not in the workspace of this server any more. " + INSTEAD
STILL_COPIED = "The files of this conversation's folder are still to be copied. Wait, or send its next message."
GONE = "The folder of this conversation is gone. Restore it from a backup, or fork the run again."
UNFILLED = "The files of this conversation's folder were not copied: {why}. Make room, then send the next message."
Tell = Callable[[Notice], Awaitable[None]]
logger = logging.getLogger(__name__)


class NoSuchState(Exception):
    """The files of that moment cannot be had. The message says why, and what to do."""


class Moment(Struct, frozen=True):
    """A moment of a run: its calls that had been `started` by then, and those that had `finished`.

    `ended` is when the run ended, infinite while it is under way.
    """

    run: str
    started: Collection[str]
    finished: Collection[str]
    ended: float = math.inf


class ScratchFolders(Struct, frozen=True):
    """The folders of one server; without `checkpoints` there are no new ones."""

    root: Path
    checkpoints: Checkpoints | None = None

    def of(self, session: str | None) -> Path | None:
        """Return the folder that the runs of a session work in, if it is its own."""
        if session is None or not NAME.fullmatch(session):
            return None
        path = self.root / session
        return path if path.is_dir() else None

    def lacks(self, session: str) -> bool:
        """Return True if the folder of a session is gone."""
        return session.startswith(OWN) and self.of(session) is None

    async def copy(self, session: str, principal: str, parent: str) -> str:
        """Return the id for a branch of a session, with a folder like that of the session, if that has its own.

        Raises NoSuchState, StoreFailed.
        """
        if self.lacks(parent):
            raise NoSuchState(GONE)
        if (folder := self.of(parent)) is None:
            return session
        session = own_session()
        await self.begin(session, principal, folder, Moment("", (), ()))
        return session

    async def begin(self, session: str, principal: str, workspace: Path, moment: Moment) -> int:
        """Make a folder for a new session; `fill` puts the files in. Return how many places are left out.

        Raises NoSuchState, StoreFailed.
        """
        if (checkpoints := self.checkpoints) is None:
            raise NoSuchState(OFF)
        row = await asyncio.to_thread(checkpoints.store.row, moment.run)
        path = row.workspace if row else str(workspace)
        if not checkpoints.holds(path):
            raise NoSuchState(ELSEWHERE.format(workspace=path))
        if row and (row.state == UNAVAILABLE or row.note == DELETED):
            raise NoSuchState(f"The files of that moment cannot be restored: {row.note.rstrip('.')}. {INSTEAD}")
        folder = checkpoints.folder(path)
        async with checkpoints.looking(folder):  # so that no content goes before it is named
            return await asyncio.to_thread(
                self._begin, checkpoints, folder, ScratchRow(session, principal, path, time.time()), moment
            )

    def _begin(self, checkpoints: Checkpoints, folder: Folder, row: ScratchRow, moment: Moment) -> int:
        known = checkpoints.store.scratch_sessions()
        if sum(name == row.principal for name, _ in known.values()) >= MOST_FOLDERS:
            raise NoSuchState(TOO_MANY.format(most=MOST_FOLDERS))
        try:
            entries = state_at(checkpoints, folder, moment)
        except Unscannable as unfit:
            raise NoSuchState(f"The workspace cannot be looked at: {unfit}. {INSTEAD}") from unfit
        files = _restorable(entries)
        above = checkpoints.store.scratch(Path(folder.path).name) if self.of(Path(folder.path).name) else None
        if above and above.files:
            raise NoSuchState(STILL_COPIED)
        base = (
            replace(above, session=row.session, created=row.created, files=files)
            if above
            else replace(row, files=files, base=files)
        )
        checkpoints.store.put(scratch=base)
        try:
            self.root.mkdir(mode=0o700, exist_ok=True)
            self._marker(row.session).touch(0o600)
            (self.root / row.session).mkdir(0o700)
        except OSError as error:
            checkpoints.store.forget_scratch(row.session, str(self.root / row.session))
            with suppress(OSError):
                self._marker(row.session).unlink()
            raise StoreFailed(UNFILLED.format(why=error.strerror)) from error
        return sum(not entry.can_restore for entry in entries.values())

    def _marker(self, session: str) -> Path:
        return self.root / f"{session}.unfilled"

    async def fill(self, session: str, tell: Tell) -> None:
        """Copy the files into the folder of a session, unless they are there. Raises StoreFailed."""
        folder = self.of(session)
        if folder is None or not self._marker(session).exists():
            return
        store = self.checkpoints.store if self.checkpoints else None
        row = await asyncio.to_thread(store.scratch, session) if store else None
        if store is None or row is None:
            raise StoreFailed(UNFILLED.format(why=OFF.rstrip(".")))
        try:
            await asyncio.to_thread(_make_folders, folder, row.files)
            copied = 0
            for batch in _batches(row.files):
                contents = await asyncio.to_thread(store.contents, [entry.digest for _, entry in batch])
                await asyncio.to_thread(_write, folder, batch, contents)
                before, copied = copied, copied + len(batch)
                if len(row.files) > QUIETLY and before // NOTICE_EVERY != copied // NOTICE_EVERY:
                    await tell(Notice(FORK, f"Copied {copied:,} of {len(row.files):,} files."))
            await asyncio.to_thread(_set_modes, folder, row.files)
        except OSError as error:
            raise StoreFailed(UNFILLED.format(why=error.strerror)) from error
        await asyncio.to_thread(store.put, scratch=replace(row, files={}))
        self._marker(session).unlink(missing_ok=True)

    async def forget(self, session: str) -> None:
        """Delete the folder of a session, with what is kept of it. Raises StoreFailed."""
        if folder := self.of(session):
            try:
                await asyncio.to_thread(remove_folder, folder)
            except OSError as error:
                logger.warning("the folder %s is removed later: %s", folder, error)
                return
            await asyncio.to_thread(self._marker(session).unlink, missing_ok=True)
        if self.checkpoints and session in await asyncio.to_thread(self.checkpoints.store.scratch_sessions):
            await self.checkpoints.forget_scratch(session, str(self.root / session))


def own_session() -> str:
    """Return the id of a new session that shall have a folder of its own."""
    return f"{OWN}{token_hex(10)}"


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it. Raises OSError."""
    with OpenFolders(folder.parent) as folders:
        remove_below(folders.root, folder.name, unlock=True)


def state_at(checkpoints: Checkpoints, folder: Folder, moment: Moment) -> Entries:
    """Return the entries of a workspace that is held at a moment. Raises NoSuchState, Unscannable, StoreFailed."""
    entries = dict(checkpoints.look(folder))
    last = _last_look(checkpoints, folder.path, moment)
    for look in reversed(checkpoints.store.looks(folder.path, after=last)):
        if look.before is None:
            raise NoSuchState(UNKNOWN)
        for path, before in look.before.items():
            if before is None:
                entries.pop(path, None)
            else:
                entries[path] = before
    return entries


def _last_look(checkpoints: Checkpoints, path: str, moment: Moment) -> int:
    """Return the number of the last look that was taken by a moment: the first of its run at the least."""
    own = checkpoints.store.looks(path, run=moment.run)
    taken = [look for look in own if look.call in (moment.finished if look.is_after else moment.started)]
    if taken:
        return taken[-1].number
    row = checkpoints.store.row(moment.run)
    if own:
        if row and checkpoints.store.lacks_looks(path, row.created, own[0].number):
            raise NoSuchState(UNKNOWN)
        return own[0].number
    if row:
        raise NoSuchState(TOO_OLD)
    return checkpoints.store.last_look(path, moment.ended)


def _restorable(entries: Entries) -> Entries:
    """Return what can be restored, with all folders that it lies in."""
    files = dict[bytes, Entry]()
    for path, entry in sorted(entries.items()):
        above = files.get(path.rpartition(b"/")[0])
        if entry.can_restore and (b"/" not in path or (above is not None and above.kind == FOLDER)):
            files[path] = entry
    return files


def _batches(files: Entries) -> Iterator[list[tuple[bytes, Entry]]]:
    """Yield the files and links in parts that fit into memory."""
    batch, size = list[tuple[bytes, Entry]](), 0
    for path, entry in files.items():
        if entry.kind not in (FILE, LINK):
            continue
        if batch and (size + entry.size > BATCH or len(batch) == MOST_ASKED):
            yield batch
            batch, size = [], 0
        batch.append((path, entry))
        size += entry.size
    if batch:
        yield batch


def _folders(files: Entries) -> list[bytes]:
    return sorted(path for path, entry in files.items() if entry.kind == FOLDER)


def _make_folders(root: Path, files: Entries) -> None:
    for path in _folders(files):
        folder = root / os.fsdecode(path)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)


def _set_modes(root: Path, files: Entries) -> None:
    for path in reversed(_folders(files)):
        (root / os.fsdecode(path)).chmod(files[path].mode)


def _write(root: Path, batch: Iterable[tuple[bytes, Entry]], contents: dict[bytes, bytes]) -> None:
    for path, entry in batch:
        place = root / os.fsdecode(path)
        place.unlink(missing_ok=True)  # of a server that was killed meanwhile
        if entry.kind == LINK:
            place.symlink_to(os.fsdecode(contents[entry.digest]))
            continue
        opened = os.open(place, CREATE, 0o600)
        with os.fdopen(opened, "wb", buffering=0) as file:
            file.write(contents[entry.digest])
            os.fchmod(opened, entry.mode)
