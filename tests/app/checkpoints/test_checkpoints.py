"""Looks at a workspace, whose changes they find, and undos, also when the server is killed at any step of one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.checkpoints.report import report, undone_message
from app.checkpoints.retention import tidy, vacuum
from app.checkpoints.undo import UndoRefused, recover, undo, undo_run
from app.checkpoints.workspace_scans import RunOwner
from app.redaction.redactor import Redactor
from app.storage.changes import StoreFailed
from app.storage.checkpoints import FILE, KEPT, LEFT_OUT, UNDOING, UNDONE, CheckpointStore, Entry
from app.workspace.scanner import ScanLimits, Scanner
from tests.support.checkpoints import around, change_in_run, checkpoints_in, tree

pytestmark = pytest.mark.anyio

STEPS = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.chmod"})
MOST_STEPS = 60


def first_state(work: Path) -> None:
    (work / "kept/deep").mkdir(parents=True)
    (work / "kept/deep/file").write_text("one")
    (work / "gone").mkdir()
    (work / "gone/file").write_text("gone")
    (work / "link").symlink_to("kept")
    (work / "file_or_folder").write_text("file")
    (work / "mode").write_text("mode")


def changed(work: Path) -> None:
    (work / "kept/deep/file").write_text("two")
    (work / "gone/file").unlink()
    (work / "gone").rmdir()
    (work / "link").unlink()
    (work / "link").symlink_to("nowhere")
    (work / "file_or_folder").unlink()
    (work / "file_or_folder/in").mkdir(parents=True)
    (work / "file_or_folder/in/it").write_text("new")
    (work / "mode").chmod(0o700)
    (work / "\udcff name\n").write_text("odd")


def child_undoes(folder: Path, run: str, killed_at: int) -> bool:
    """Undo in a child process that kills itself at a step; return True if it came to the end."""
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    try:
        checkpoints = checkpoints_in(folder)
        row = checkpoints.store.row(run)
        left = killed_at

        def step(event: str, _: object) -> None:
            nonlocal left
            if event in STEPS:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(step)
        if row:
            undo(checkpoints, checkpoints.folder(row.workspace), row, "ann")
        os._exit(0)
    finally:
        os._exit(1)


async def test_an_undo_that_is_killed_at_any_step_is_finished(tmp_path: Path) -> None:
    states = set[str]()
    for killed_at in range(MOST_STEPS):
        folder = tmp_path / str(killed_at)
        work = folder / "work"
        work.mkdir(parents=True)
        first_state(work)
        before = tree(work)
        checkpoints = checkpoints_in(folder)
        await change_in_run(checkpoints, "r", partial(changed, work))
        after = tree(work)
        checkpoints.store.close()
        is_whole = child_undoes(folder, "r", killed_at)
        checkpoints = checkpoints_in(folder)
        row = checkpoints.store.row("r")
        assert row
        states.add(row.state)
        assert row.state == UNDOING or (row.state, tree(work)) in ((UNDONE, before), (KEPT, after))
        await recover(checkpoints)
        ended = await undo_run(checkpoints, "r", "ann")
        assert (ended.state, ended.undone_by, ended.note, tree(work)) == (UNDONE, "ann", "", before), killed_at
        checkpoints.store.close()
        if is_whole:
            break
    assert states == {UNDOING, UNDONE}


async def test_what_a_person_changed_after_a_kill_is_left_and_named(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path)
    work = checkpoints.root
    first_state(work)
    await change_in_run(checkpoints, "r", lambda: changed(work))
    checkpoints.store.close()
    assert not child_undoes(tmp_path, "r", 3)
    (work / "kept/deep/file").write_text("a person's")
    checkpoints = checkpoints_in(tmp_path)
    await recover(checkpoints)
    row = checkpoints.store.row("r")
    assert row and (row.state, row.note) == (UNDONE, "Not restored, because changed since: kept/deep/file")
    assert (work / "kept/deep/file").read_text() == "a person's" and (work / "gone/file").exists()


async def test_an_undo_that_cannot_be_whole_is_none(tmp_path: Path) -> None:
    """The content of one file is missing: those before it are put back."""
    checkpoints = checkpoints_in(tmp_path)
    work = checkpoints.root
    first_state(work)
    await change_in_run(checkpoints, "r", lambda: changed(work))
    after = tree(work)
    by_path = {one.path: one for one in checkpoints.store.changes("r")}
    lost = by_path[b"kept/deep/file"].before
    assert lost

    class Lossy:
        def __getattr__(self, name: str) -> object:
            return getattr(kept, name)

        def content(self, digest: bytes) -> bytes:
            if lost and digest == lost.digest:
                raise StoreFailed("it is missing")
            return kept.content(digest)

    kept, checkpoints.store = checkpoints.store, Lossy()  # type: ignore[assignment]
    with pytest.raises(UndoRefused, match="Nothing was undone, because a file could not be restored"):
        await undo_run(checkpoints, "r", "ann")
    row = kept.row("r")
    assert row and row.state == KEPT and tree(work) == after
    checkpoints.store = kept
    await undo_run(checkpoints, "r", "ann")
    assert (work / "kept/deep/file").read_text() == "one"


async def test_a_call_that_a_server_was_killed_in_is_looked_behind(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path)
    work = checkpoints.root
    async with AsyncExitStack() as never_left:
        await never_left.enter_async_context(around(checkpoints, RunOwner("r", "s", "ann"), work))
        (work / "made").write_text("by the call")
        after_a_kill = checkpoints_in(tmp_path, CheckpointStore(tmp_path / "checkpoints.db"))
        await recover(after_a_kill)
        assert [(one.path, one.shared) for one in after_a_kill.store.changes("r")] == [(b"made", True)]
        with pytest.raises(UndoRefused, match="made: something else may have changed it"):
            await undo_run(after_a_kill, "r", "ann")


async def test_the_model_learns_once_of_an_undo(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path)
    await change_in_run(checkpoints, "r", lambda: (checkpoints.root / "made").write_text("by the call"))
    await undo_run(checkpoints, "r", "ann")
    session = "session of r"
    assert checkpoints.unreported == {session}
    [row] = await checkpoints.take_undone(session)
    assert undone_message(checkpoints.store, [row]).endswith("As before them are: made.]")
    assert not await checkpoints.take_undone(session)


async def test_calls_side_by_side_share_what_changed_meanwhile(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path)
    work = checkpoints.root
    async with around(checkpoints, RunOwner("one", "s", "ann"), work):
        (work / "alone").write_text("1")
        async with around(checkpoints, RunOwner("other", "t", "ann"), work):
            (work / "together").write_text("2")
            with pytest.raises(UndoRefused, match="Another run is at work"):
                await undo_run(checkpoints, "one", "ann")
    assert [(one.path, one.shared) for one in checkpoints.store.changes("one")] == [
        (b"alone", False),
        (b"together", True),
    ]
    for run in ("one", "other"):
        with pytest.raises(UndoRefused, match="together: something else may have changed it"):
            await undo_run(checkpoints, run, "ann")
    assert (work / "alone").exists()


async def test_what_is_as_it_was_is_no_change(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path)
    file = checkpoints.root / "file"
    file.write_text("same")
    await change_in_run(checkpoints, "r", lambda: file.write_text("other"))
    await change_in_run(checkpoints, "r", lambda: file.write_text("same"))
    assert report(checkpoints.store, "r")["files"] == []
    with pytest.raises(UndoRefused, match="changed nothing"):
        await undo_run(checkpoints, "r", "ann")


async def test_the_oldest_go_when_the_store_is_full(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path, store_bytes=300_000)
    file = checkpoints.root / "file"
    for number in range(8):
        await change_in_run(checkpoints, f"r{number}", lambda: file.write_bytes(os.urandom(90_000)))
    kept = {row.run for row in checkpoints.store.rows(KEPT)}
    assert "r7" in kept and "r0" not in kept and checkpoints.store.size() <= 300_000
    await undo_run(checkpoints, "r7", "ann")


async def test_sessions_that_are_gone_take_their_checkpoints_along(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path)
    for run in ("r", "s"):
        await change_in_run(checkpoints, run, partial((checkpoints.root / run).write_text, run))

    async def owner_of(session: str) -> str | None:
        return "ann" if session == "session of s" else None

    await tidy(checkpoints, owner_of)
    assert [row.run for row in checkpoints.store.rows(KEPT)] == ["s"]
    assert checkpoints.store.content(checkpoints.store.changes("s")[0].after.digest) == b"s"  # type: ignore[union-attr]


async def test_the_last_look_forgets_what_was_deleted_with_its_session(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path)
    await change_in_run(checkpoints, "r", partial((checkpoints.root / "a").write_text, "zanzibar"))
    [change] = checkpoints.store.changes("r")
    (checkpoints.root / "a").unlink()
    await tidy(checkpoints, no_owner)
    assert change.after and not checkpoints.store.size()
    with pytest.raises(StoreFailed, match="missing"):
        checkpoints.store.content(change.after.digest)


async def test_a_vacuumed_file_holds_no_word_of_what_is_gone(tmp_path: Path) -> None:
    """Neither of a session nor, from the last look, of a file; what is there still is known."""
    checkpoints = checkpoints_in(tmp_path)
    work, words = checkpoints.root, ("zanzibar", "edited", "harmless")
    for word in words:
        await change_in_run(checkpoints, word, partial((work / word).write_text, word * 20))
    checkpoints.store.close()
    (work / "zanzibar").unlink()
    (work / "edited").write_text("other")
    await vacuum(checkpoints.store, no_owner)
    checkpoints.store.close()
    data = (tmp_path / "checkpoints.db").read_bytes()  # closed: there is no log beside it
    assert b"harmless" * 20 in data and b"zanzibar" not in data and b"edited" not in data
    again = checkpoints_in(tmp_path)
    await change_in_run(again, "r", partial((work / "edited").write_text, "more"))
    assert [(one.path, one.before is not None) for one in again.store.changes("r")] == [(b"edited", True)]
    await undo_run(again, "r", "ann")
    assert (work / "edited").read_text() == "other" and (work / "harmless").exists()


async def test_a_vacuum_leaves_a_call_that_was_cut_off_to_the_next_start(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path)
    (checkpoints.root / "a").write_text("before")
    await checkpoints.begin(RunOwner("r", "s", "ann"), checkpoints.root)
    (checkpoints.root / "a").write_text("after")
    await vacuum(checkpoints.store, no_owner)
    again = checkpoints_in(tmp_path)
    await again.recover()
    [change] = again.store.changes("r")
    assert change.before and again.store.content(change.before.digest) == b"before"


async def no_owner(_: str) -> None:
    """All sessions are gone."""


async def test_a_store_that_fails_stops_no_run(tmp_path: Path) -> None:
    (tmp_path / "checkpoints.db").write_text("no database at all, but long enough to be read as one" * 20)
    checkpoints = checkpoints_in(tmp_path)
    async with around(checkpoints, RunOwner("r", "s", "ann"), checkpoints.root) as why:
        assert why and "Move that file away" in why
    await recover(checkpoints)


def test_a_look_reads_what_differs_and_nothing_outside(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    for folder in (work, outside):
        folder.mkdir()
    (outside / "secret").write_text("secret")
    (work / "leads_out").symlink_to(outside)
    (work / "file").write_text("text")
    (work / "large").write_bytes(b"x" * 11)
    os.mkfifo(work / "fifo")
    for name in (".git", ".envrc", ".vscode"):
        (work / name).mkdir()
    os.utime(work / "file", ns=(1, 1))
    kept = list[bytes]()
    limits = ScanLimits(file_bytes=10)
    first = Scanner({}, lambda contents: kept.extend(data for _, data in contents), limits).run(str(work))
    assert {path: entry.kind for path, entry in first.entries.items()} == {
        b"leads_out": "link",
        b"file": FILE,
        b"large": LEFT_OUT,
        b".git": LEFT_OUT,
        b".envrc": LEFT_OUT,
        b".vscode": LEFT_OUT,
    }
    assert sorted(kept) == sorted([b"text", os.fsencode(outside)])
    # Changed within a tick of the clock, it has to be read again; with settled times it has not.
    settled = dict(first.entries)
    status = (work / "file").stat()
    times = status.st_ino, status.st_mtime_ns, status.st_ctime_ns
    settled[b"file"] = Entry(FILE, status.st_mode & 0o777, 4, first.entries[b"file"].digest, *times)
    again = Scanner(settled, lambda _: None, limits).run(str(work))
    assert not again.has_read and again.entries[b"file"] is settled[b"file"]
    unsettled = settled | {b"file": replace(settled[b"file"], digest=b"of before", is_settled=False)}
    assert Scanner(unsettled, lambda _: None, limits).run(str(work)).entries[b"file"].digest != b"of before"


def test_no_secret_is_kept(tmp_path: Path) -> None:
    secret, token = "sk-sesame-0123456789", f"dgm_{'x' * 43}"
    for name, text in {"one": f"a{secret}b", "two": f"a{token}b", secret: "text", "clean": "sk-sesame"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link").symlink_to(secret)
    kept = list[bytes]()
    redactor = Redactor([secret])
    scanner = Scanner({}, lambda contents: kept.extend(data for _, data in contents), is_secret=redactor.is_secret_in)
    looked = scanner.run(str(tmp_path))
    assert {path: entry.kind for path, entry in looked.entries.items()} == {
        b"one": LEFT_OUT,
        b"two": LEFT_OUT,
        b"clean": FILE,
    }
    assert kept == [b"sk-sesame"]


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (ScanLimits(files=2), "more than 2 files"),
        (ScanLimits(bytes=1 << 20), "more than 1 MB"),
        (ScanLimits(seconds=0.0), "took more than 0 s"),
    ],
)
def test_a_look_is_bounded(tmp_path: Path, limits: ScanLimits, why: str) -> None:
    for number in range(3):
        (tmp_path / str(number)).write_bytes(b"x" * 600_000)
    look = Scanner({}, lambda _: None, limits).run(str(tmp_path))
    assert why in look.unfit
    assert look.is_whole == (limits.bytes == 1 << 20)  # then it is only not read


async def test_a_cancelled_call_is_looked_behind(tmp_path: Path) -> None:
    checkpoints = checkpoints_in(tmp_path)
    begun = asyncio.Event()

    async def call() -> None:
        async with around(checkpoints, RunOwner("r", "s", "ann"), checkpoints.root):
            (checkpoints.root / "half").write_text("done")
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(call())
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert [one.path for one in checkpoints.store.changes("r")] == [b"half"]
