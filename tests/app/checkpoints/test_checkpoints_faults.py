"""Undos refuse what they cannot know: looks that are missing, and what somebody writes while an undo is at work."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from app.checkpoints.checkpoints import DELETED, Checkpoints
from app.checkpoints.process_locks import ALONE_S, ProcessLocks
from app.checkpoints.restore import restore
from app.checkpoints.undo import UndoRefused, undo_run
from app.checkpoints.workspace_scans import MOST_FOLDERS, RunOwner
from app.storage.changes import StoreFailed
from app.storage.checkpoints import (
    FILE,
    FOLDER,
    KEPT,
    LEFT_OUT,
    UNAVAILABLE,
    UNDOING,
    CheckpointRow,
    CheckpointStore,
    Entry,
)
from app.workspace.scanner import ScanLimits, Scanner, differences
from tests.support.checkpoints import around, change_in_run, checkpoints_in, tree
from tests.support.replicas.servers import passed
from tools.base.outcome import ToolFailed

pytestmark = pytest.mark.anyio
NOBODY = 65_534
SEEN_BY_NOBODY = {
    b"closed": LEFT_OUT,
    b"listed": FOLDER,
    b"listed/file": LEFT_OUT,
    b"open": FOLDER,
    b"open/file": FILE,
}


class Watched:
    """A store that calls `before` whenever rows are put, which may raise StoreFailed."""

    def __init__(self, store: CheckpointStore, before: Callable[[Sequence[CheckpointRow]], None]) -> None:
        self._store, self._before = store, before

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def put(self, rows: Sequence[CheckpointRow] = (), **more: object) -> None:
        self._before(rows)
        self._store.put(rows, **more)  # type: ignore[arg-type]


def watch(checkpoints: Checkpoints, before: Callable[[Sequence[CheckpointRow]], None]) -> None:
    checkpoints.store = Watched(checkpoints.store, before)  # type: ignore[assignment]


@pytest.mark.parametrize("was_there", [True, False])
async def test_what_a_person_writes_during_an_undo_stays(tmp_path: Path, was_there: bool) -> None:
    checkpoints = checkpoints_in(tmp_path)
    file, other = checkpoints.root / "file", checkpoints.root / "other"
    if was_there:
        file.write_text("old")
    await change_in_run(checkpoints, "r", lambda: (file.write_text("by the run"), other.write_text("by the run")))

    def save(rows: Sequence[CheckpointRow]) -> None:
        if rows and rows[0].state == UNDOING:
            file.write_text("by a person")

    watch(checkpoints, save)
    with pytest.raises(UndoRefused, match=r"Nothing was undone.*'file' has changed in the meantime"):
        await undo_run(checkpoints, "r", "ann")
    assert (file.read_text(), other.read_text()) == ("by a person", "by the run")
    assert tree(checkpoints.root).keys() == {"file", "other"}


def test_only_what_the_look_has_found_is_replaced(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints.db")
    work = tmp_path / "work"
    work.mkdir()
    store.put_contents([(b"new", b"new")])
    new = Entry(FILE, 0o644, 3, b"new")

    def written(name: str, found: Entry | None) -> bytes:
        restore(store, work, [(name.encode(), found, new)], "r")
        return (work / name).read_bytes()

    (work / "appeared").write_text("x")
    (work / "link").symlink_to("elsewhere")
    (work / "folder").mkdir()
    os.mkfifo(work / "pipe")
    for name in ("appeared", "link", "folder"):
        with pytest.raises(ToolFailed, match="has changed in the meantime"):
            written(name, None)
    with pytest.raises(ToolFailed, match="has changed in the meantime"):
        written("gone", Entry(FILE, 0o644, 3, b"new"))
    assert written("pipe", None) == b"new"  # no look sees it
    (work / "folder/mine").write_text("mine")
    with pytest.raises(OSError, match="directory"):
        written("folder", Entry(FOLDER, 0o755))
    assert sorted(one.name for one in work.iterdir()) == ["appeared", "folder", "link", "pipe"]


async def test_a_look_that_fails_for_one_run_gives_up_the_others(tmp_path: Path) -> None:
    """It has seen some of what another run has done, and nobody will find that again."""
    checkpoints = checkpoints_in(tmp_path)
    checkpoints.limits = ScanLimits(files=3)
    work = checkpoints.root
    async with around(checkpoints, RunOwner("one", "s", "ann"), work):
        for number in range(4):
            (work / str(number)).write_text("by one")
        async with around(checkpoints, RunOwner("other", "t", "ann"), work) as why:
            assert why and "more than 3 files" in why
            (work / "3").unlink()
    row = checkpoints.store.row("one")
    assert row and row.state == UNAVAILABLE
    with pytest.raises(UndoRefused, match="cannot be undone: A look at the workspace behind a call failed"):
        await undo_run(checkpoints, "one", "ann")


@pytest.mark.parametrize("at", ["begin", "end"])
async def test_a_run_that_the_store_failed_is_not_undone_in_part(tmp_path: Path, at: str) -> None:
    checkpoints = checkpoints_in(tmp_path)
    work = checkpoints.root
    await change_in_run(checkpoints, "r", lambda: (work / "first").write_text("1"))
    is_full = at == "begin"

    def fail(_: object) -> None:
        if is_full:
            raise StoreFailed("The disk is full.")

    watch(checkpoints, fail)
    async with around(checkpoints, RunOwner("r", "session of r", "ann"), work):
        (work / "second").write_text("2")
        is_full = True
    is_full = False
    if at == "end":  # the run goes on: what is known of its later calls is not all
        await change_in_run(checkpoints, "r", lambda: (work / "third").write_text("3"))
    with pytest.raises(UndoRefused, match=r"cannot be undone: A look .* failed: The disk is full"):
        await undo_run(checkpoints, "r", "ann")
    assert {"first", "second"} <= tree(work).keys()


async def test_a_look_that_no_recovery_could_take_is_missed(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path)
    await change_in_run(checkpoints, "r", lambda: (checkpoints.root / "first").write_text("1"))
    row = checkpoints.store.row("r")
    assert row and row.state == KEPT
    checkpoints.store.put([CheckpointRow("r", row.session, row.principal, row.workspace, row.created)])
    with pytest.raises(UndoRefused, match="behind one of its calls is missing"):
        await undo_run(checkpoints, "r", "ann")
    async with around(checkpoints, RunOwner("r", row.session, "ann"), checkpoints.root) as why:
        assert why and "behind one of its calls is missing" in why


async def test_the_last_that_is_left_of_something_is_not_undone(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path)
    work = checkpoints.root
    (work / "repository.git").mkdir()
    (work / "repository.git/HEAD").write_text("precious")
    (work / "large").write_bytes(b"x" * 200_000)
    await change_in_run(checkpoints, "moved", lambda: (work / "repository.git").rename(work / "bare"))

    def pack() -> None:
        (work / "large").unlink()
        (work / "large.gz").write_text("packed")

    await change_in_run(checkpoints, "packed", pack)
    for run, name in (("moved", "repository.git"), ("packed", "large")):
        with pytest.raises(UndoRefused, match=f"{name}: the run has removed it and it is not kept"):
            await undo_run(checkpoints, run, "ann")
    assert (work / "bare/HEAD").read_text() == "precious" and (work / "large.gz").exists()


def test_what_one_look_could_not_look_into_is_no_change() -> None:
    """A folder without rights: its files are neither removed nor created when the rights change."""
    folder, closed = Entry(FOLDER, 0o700), Entry("left out", 0, inode=1)
    file = Entry(FILE, 0o644, 1, b"digest")
    seen, hidden = {b"d": folder, b"d/e": folder, b"d/e/f": file}, {b"d": closed}
    assert [path for path, _, _ in differences(seen, hidden)] == [b"d"]
    assert [path for path, _, _ in differences(hidden, seen)] == [b"d"]


def test_a_closed_folder_is_passed_by() -> None:
    """Also by a server that is not root."""
    with TemporaryDirectory() as folder:
        for name, mode in (("closed", 0), ("listed", 0o444), ("open", 0o755)):
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "file").write_text("x")
            (Path(folder) / name).chmod(mode)
        Path(folder).chmod(0o755)

        def is_seen() -> bool:
            if os.geteuid() == 0:
                os.setuid(NOBODY)
            look = Scanner({}, lambda _: None).run(folder)
            return {path: entry.kind for path, entry in look.entries.items()} == SEEN_BY_NOBODY

        assert holds_in_child(is_seen)
        for one in Path(folder).iterdir():
            one.chmod(0o755)


def test_a_file_that_cannot_be_read_now_is_not_gone(tmp_path: Path) -> None:
    """It would be another run's that makes it, once it can be read again."""
    (tmp_path / "file").write_text("mine")

    def fails(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and arguments[0] == "file":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def is_refused() -> bool:
        sys.addaudithook(fails)
        return "Input/output error" in Scanner({}, lambda _: None).run(str(tmp_path)).unfit

    assert holds_in_child(is_refused)


def holds_in_child(check: Callable[[], bool]) -> bool:
    """Run a check in a process of its own, which it may change."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    try:
        os._exit(0 if check() else 1)
    finally:
        os._exit(2)


async def test_a_run_whose_checkpoint_was_deleted_is_not_undone_in_part(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path, store_bytes=100_000)
    work = checkpoints.root
    for number in range(3):
        await change_in_run(checkpoints, "r", partial((work / str(number)).write_bytes, os.urandom(60_000)))
    row = checkpoints.store.row("r")
    assert row and (row.state, row.note) == (UNAVAILABLE, DELETED) and not checkpoints.store.changes("r")
    with pytest.raises(UndoRefused, match="cannot be undone: It was deleted"):
        await undo_run(checkpoints, "r", "ann")


async def test_a_workspace_that_is_waited_for_stays_the_same(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path)
    folder = checkpoints.folder("waited for")
    async with checkpoints.looking(folder):
        waiting = asyncio.create_task(checkpoints.looking(folder).__aenter__())
        await asyncio.sleep(0)
    for number in range(2 * MOST_FOLDERS):  # the lock is free, and its next holder has not had its turn
        checkpoints.folder(str(number))
    assert checkpoints.folder("waited for") is folder
    await waiting


async def test_a_look_and_what_tidies_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """While another worker looks: what tidies waits for that one, and a look for what tidies."""
    tidied, others = list[str](), ProcessLocks(tmp_path / "locks")
    checkpoints = checkpoints_in(tmp_path, locks=ProcessLocks(tmp_path / "locks"))
    async with others.looking("elsewhere"):
        tidying = asyncio.create_task(checkpoints._alone(partial(tidied.append, "once")))
        async with asyncio.timeout(10):
            while not checkpoints._quiet.locked():
                await passed(0)
        looking = asyncio.create_task(checkpoints.looking(checkpoints.folder("here")).__aenter__())
        await asyncio.sleep(0)
    async with asyncio.timeout(ALONE_S / 2):
        await tidying
        await looking
    assert tidied


async def test_the_first_worker_makes_the_file_before_there_are_others(tmp_path: Path) -> None:
    await checkpoints_in(tmp_path, locks=ProcessLocks(tmp_path / "locks")).recover()
    assert (tmp_path / "checkpoints.db").stat().st_size > 0
