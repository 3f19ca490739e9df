"""Earlier states of a workspace, from its looks; folders of single sessions, filled also after a kill."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.checkpoints.checkpoints import Checkpoints
from app.checkpoints.retention import tidy
from app.checkpoints.scratch import MOST_FOLDERS, Moment, NoSuchState, ScratchFolders
from app.checkpoints.take_over import _changes, changes_of, take_over
from app.checkpoints.undo import UndoRefused, recover, undo_run
from app.checkpoints.workspace_scans import NO_SESSION, RunOwner
from app.core.events import Notice
from app.storage.changes import StoreFailed
from app.storage.checkpoints import KEPT, LOOKS, SCHEMA, UNDOING, VERSION, CheckpointRow, CheckpointStore
from app.workspace.scanner import ScanLimits
from tests.support.checkpoints import checkpoints_in, tree

pytestmark = pytest.mark.anyio
Tree = dict[str, tuple[int, bytes]]


def folders_in(folder: Path, store_bytes: int = 1 << 30) -> ScratchFolders:
    checkpoints = checkpoints_in(folder, store_bytes=store_bytes)
    checkpoints.scratch = folder / "forks"
    return ScratchFolders(folder / "forks", checkpoints)


async def call(checkpoints: Checkpoints, run: str, name: str, change: Callable[[], object]) -> None:
    await checkpoints.begin(RunOwner(run, f"session of {run}", "ann"), checkpoints.root, name)
    change()
    await checkpoints.end(run, checkpoints.root, name)


async def ignore(_: Notice) -> None:
    """Nobody reads it."""


async def at(folders: ScratchFolders, run: str, started: Collection[str] = (), finished: Collection[str] = ()) -> Tree:
    """The files of a moment, in a folder that is deleted again."""
    assert folders.checkpoints
    await folders.begin("ses_1", "ann", folders.checkpoints.root, Moment(run, {*started, *finished}, finished))
    await folders.fill("ses_1", ignore)
    folder = folders.of("ses_1")
    assert folder
    found = tree(folder)
    await folders.forget("ses_1")
    assert folders.of("ses_1") is None and not list(folders.root.iterdir())
    return found


async def test_each_moment_has_its_files_whoever_has_written_since(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    checkpoints = folders.checkpoints
    assert checkpoints
    work = checkpoints.root
    (work / "kept").write_text("kept")
    trees = [tree(work)]
    for number in range(4):
        await call(checkpoints, "r", f"c{number}", partial((work / f"f{number % 2}").write_text, str(number)))
        trees.append(tree(work))
        (work / "by a person").write_text(f"after {number}")
        await call(checkpoints, "other", f"o{number}", (work / "other").touch)
    await call(checkpoints, "r", "nothing", lambda: None)
    calls = [f"c{number}" for number in range(4)]
    for number, expected in enumerate(trees):
        assert await at(folders, "r", finished=calls[:number]) == expected
        if number:
            before = await at(folders, "r", started=[calls[number - 1]], finished=calls[: number - 1])
            assert before.keys() - trees[number - 1].keys() <= {"by a person", "other"}
    await undo_run(checkpoints, "other", "ann")
    assert await at(folders, "r", finished=calls[:2]) == trees[2]
    await checkpoints.forget({"session of other"})
    assert await at(folders, "r", finished=calls[:3]) == trees[3]
    checkpoints.store.close()
    again = folders_in(tmp_path)
    assert await at(again, "r", finished=calls[:1]) == trees[1]


async def test_calls_at_a_time_and_looks_between_have_their_files(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    checkpoints = folders.checkpoints
    assert checkpoints
    work = checkpoints.root
    for run in "ab":
        await checkpoints.begin(RunOwner(run, f"session of {run}", "ann"), work, f"c{run}")
        (work / run).touch()
    assert not await at(folders, "a", started=["ca"])
    for run in "ba":
        await checkpoints.end(run, work, f"c{run}")
    assert (await at(folders, "a", finished=["ca"])).keys() == {"a", "b"}
    await checkpoints.begin(RunOwner("c", "session of c", "ann"), work, "killed")
    (work / "c").touch()
    checkpoints.store.close()
    folders = folders_in(tmp_path)
    assert folders.checkpoints
    await folders.checkpoints.recover()
    assert (await at(folders, "c", finished=["killed"])).keys() == {"a", "b", "c"}
    assert (await at(folders, "c", started=["killed"])).keys() == {"a", "b"}


async def test_nothing_is_kept_of_a_session_that_is_gone(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    checkpoints = folders.checkpoints
    assert checkpoints
    work = checkpoints.root
    await call(checkpoints, "a", "c1", partial((work / "secret").write_text, "the first secret"))
    await call(checkpoints, "a", "c2", partial((work / "secret").write_text, "the other secret"))
    await call(checkpoints, "b", "c3", (work / "secret").unlink)
    await checkpoints.forget({"session of a"})
    stored = sqlite3.connect(tmp_path / "checkpoints.db").execute("SELECT bytes FROM contents").fetchall()
    assert stored == [(b"the other secret",)]  # b has removed it, which can be undone
    assert await at(folders, "b") and not await at(folders, "b", finished=["c3"])
    await folders.begin("ses_2", "ann", work, Moment("b", (), ()))

    async def owner_of(session: str) -> str | None:
        return None if session == "ses_2" else "ann"

    await tidy(checkpoints, owner_of)
    assert folders.of("ses_2")  # its session may be about to be stored
    row = checkpoints.store.scratch("ses_2")
    assert row
    checkpoints.store.put(scratch=type(row)("ses_2", "ann", row.origin, time.time() - 3600, row.files, row.base))
    await tidy(checkpoints, owner_of)
    assert folders.of("ses_2") is None and checkpoints.store.scratch("ses_2") is None


@pytest.mark.parametrize("in_its_place", ["forks", "forks/ses_1"])
async def test_a_folder_that_cannot_be_made_leaves_nothing(tmp_path: Path, in_its_place: str) -> None:
    folders = folders_in(tmp_path)
    assert folders.checkpoints
    await call(folders.checkpoints, "r", "c", lambda: None)
    (tmp_path / in_its_place).parent.mkdir(exist_ok=True)
    (tmp_path / in_its_place).touch()
    with pytest.raises(StoreFailed, match="Make room"):
        await folders.begin("ses_1", "ann", folders.checkpoints.root, Moment("r", (), ()))
    assert not folders.checkpoints.store.scratch_sessions() and not list(folders.root.glob("*.unfilled"))


async def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    checkpoints = folders.checkpoints
    assert checkpoints
    work = checkpoints.root
    await call(checkpoints, "old", "c1", (work / "a").touch)
    checkpoints.limits = ScanLimits(files=2)
    for name in "bcd":
        (work / name).touch()
    await call(checkpoints, "large", "c2", (work / "e").touch)
    for run in ("old", "large"):
        with pytest.raises(NoSuchState, match="more than 2 files"):
            await at(folders, run)
    checkpoints.limits = ScanLimits()
    await call(checkpoints, "new", "c3", (work / "f").touch)
    for run, words in (("old", "not known any more"), ("large", "more than 2 files")):
        with pytest.raises(NoSuchState, match=words):
            await at(folders, run)
    assert "e" in await at(folders, "new")
    with pytest.raises(NoSuchState, match="Checkpoints are off"):
        await ScratchFolders(folders.root).begin("ses_9", "ann", work, Moment("new", (), ()))
    for number in range(MOST_FOLDERS):
        await folders.begin(f"ses_{number}", "ann", work, Moment("new", (), ()))
    with pytest.raises(NoSuchState, match="Delete one"):
        await folders.begin("ses_x", "ann", work, Moment("new", (), ()))
    assert not any(folders.of(name) for name in (None, "", "../work", "ses_../x", "ses_x"))


async def test_the_oldest_states_go_first(tmp_path: Path) -> None:
    folders = folders_in(tmp_path, store_bytes=300_000)
    checkpoints = folders.checkpoints
    assert checkpoints
    for number in range(12):
        write = partial((checkpoints.root / "a").write_bytes, bytes([number]) * 60_000)
        await call(checkpoints, f"r{number}", "c", write)
    with pytest.raises(NoSuchState, match="checkpoint_mb"):
        await at(folders, "r0")
    assert (await at(folders, "r11"))["a"][1] == bytes([10]) * 60_000


async def test_a_folder_whose_filling_was_killed_is_filled_again(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    checkpoints = folders.checkpoints
    assert checkpoints
    work = checkpoints.root
    (work / "deep/er").mkdir(parents=True)
    for number in range(3_100):
        (work / f"deep/er/f{number}").write_text(str(number))
    (work / "link").symlink_to("nowhere")
    (work / "node_modules").mkdir()
    (work / "shut").mkdir()
    (work / "shut").chmod(0o500)
    await call(checkpoints, "r", "c", lambda: None)
    left_out = await folders.begin("ses_1", "ann", work, Moment("r", (), ()))
    assert left_out == 1
    folder = folders.of("ses_1")
    assert folder
    (folder / "deep/er").mkdir(parents=True)
    (folder / "deep/er/f1").write_text("half of")
    (folder / "link").symlink_to("half")
    with pytest.raises(StoreFailed, match="Checkpoints are off"):
        await ScratchFolders(folders.root).fill("ses_1", ignore)
    with pytest.raises(UndoRefused, match="still to be copied"):
        await changes_of(checkpoints, "ses_1", folder)
    words = list[str]()

    async def tell(notice: Notice) -> None:
        words.append(notice.message)

    await folders.fill("ses_1", tell)
    expected = tree(work)
    del expected["node_modules"]
    assert tree(folder) == expected and words == ["Copied 3,000 of 3,104 files."]
    (folder / "link").unlink()
    await folders.fill("ses_1", tell)  # once
    assert not (folder / "link").is_symlink()


def test_a_store_of_the_first_version_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.db"
    with sqlite3.connect(path) as old:
        old.executescript(SCHEMA.replace(LOOKS, "").replace(f"user_version = {VERSION}", "user_version = 1"))
        old.execute("INSERT INTO workspaces (path, entries) VALUES ('/work', x'90')")
    old.close()
    store = CheckpointStore(path)
    [look] = store.looks("/work")
    assert look.before is None and look.at > 0 and store.entries("/work") == {}
    store.close()
    store = CheckpointStore(path)
    assert len(store.looks("/work")) == 1 and store.scratch_sessions() == {}
    store.close()


async def test_a_moment_whose_looks_went_with_an_older_run_is_not_known(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    checkpoints = folders.checkpoints
    assert checkpoints
    work = checkpoints.root
    for run, name in (("old", "c1"), ("new", "c2"), ("new", "c3"), ("old", "c4"), ("new", "c5")):
        await call(checkpoints, run, name, partial((work / "a").write_text, name))
    checkpoints.store.forget_looks(str(work), {"old"})
    for finished in ([], ["c2"]):
        with pytest.raises(NoSuchState, match="not known any more"):
            await at(folders, "new", finished=finished)
    assert (await at(folders, "new", finished=["c2", "c3", "c5"]))["a"][1] == b"c5"


async def test_a_folder_of_any_depth_is_deleted(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    assert folders.checkpoints
    await call(folders.checkpoints, "r", "c", lambda: None)
    await folders.begin("ses_1", "ann", folders.checkpoints.root, Moment("r", (), ()))
    here = os.open(folders.root / "ses_1", os.O_RDONLY)
    for _ in range(2_000):
        os.mkdir("deeper", dir_fd=here)
        inner = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.fchmod(here, 0o500)
        os.close(here)
        here = inner
    os.close(here)
    await folders.forget("ses_1")
    assert not list(folders.root.iterdir()) and not folders.checkpoints.store.scratch_sessions()


async def test_calls_that_change_nothing_and_deleted_sessions_do_not_tidy_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = folders_in(tmp_path)
    await folders.forget("ses_1")
    assert not (tmp_path / "checkpoints.db").exists()
    assert folders.checkpoints
    await call(folders.checkpoints, "r", "c1", (folders.checkpoints.root / "a").touch)
    tidied = list[str]()
    for name in ("size", "sweep"):
        monkeypatch.setattr(CheckpointStore, name, lambda _, name=name: tidied.append(name))
    await call(folders.checkpoints, "r", "c2", lambda: None)
    await folders.forget("ses_1")
    assert not tidied


async def test_many_changes_of_a_folder_are_parted_at_once(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    assert folders.checkpoints
    await call(folders.checkpoints, "r", "c", lambda: None)
    await folders.begin("ses_1", "ann", folders.checkpoints.root, Moment("r", (), ()))
    await folders.fill("ses_1", ignore)
    folder = folders.of("ses_1")
    assert folder
    for number in range(8_000):
        (folder / f"f{number}").touch()
    await changes_of(folders.checkpoints, "ses_1", folder)
    begun = time.thread_time()
    row = folders.checkpoints.store.scratch("ses_1")
    assert row
    changes = _changes(folders.checkpoints, folders.checkpoints.folder(str(folder)), row)
    assert len(changes.taken) == 8_000 and time.thread_time() - begun < 1.5


class Killed(BaseException):
    """The server ends here."""


class Dying(CheckpointStore):
    """Is killed instead of putting rows once more than `left` times."""

    left = 9

    def put(self, rows: Sequence[CheckpointRow] = (), *more: Any, **others: Any) -> None:
        if rows and not self.left:
            raise Killed
        self.left -= bool(rows)
        super().put(rows, *more, **others)


async def begin_to_take_over(folder: Path, puts: int) -> tuple[ScratchFolders, Path]:
    """Take over a changed and a new file, and be killed after so many puts; return what the next start has."""
    (folder / "work").mkdir(parents=True)
    folders = folders_in(folder)
    assert folders.checkpoints
    checkpoints, work = folders.checkpoints, folders.checkpoints.root
    (work / "a").write_text("first")
    await call(checkpoints, "r", "c", lambda: None)
    await folders.begin("ses_1", "ann", work, Moment("r", (), ()))
    await folders.fill("ses_1", ignore)
    own = folders.of("ses_1")
    assert own
    (own / "a").write_text("other")
    (own / "b").write_text("new")
    changes = await changes_of(checkpoints, "ses_1", own)
    checkpoints.store = Dying(folder / "checkpoints.db")
    checkpoints.store.left = puts
    with suppress(Killed):
        await take_over(checkpoints, changes, changes.fingerprint, "ann")
    return folders_in(folder), own


async def test_a_take_over_that_is_killed_is_finished_and_can_be_undone(tmp_path: Path) -> None:
    for puts, is_done in enumerate((False, True, True)):
        folders, own = await begin_to_take_over(tmp_path / str(puts), puts)
        checkpoints = folders.checkpoints
        assert checkpoints and len(checkpoints.store.rows(UNDOING)) == (puts == 1)
        await recover(checkpoints)
        work = checkpoints.root
        kept = [row for row in checkpoints.store.rows(KEPT) if row.session == NO_SESSION]
        left = await changes_of(checkpoints, "ses_1", own)
        assert (len(kept), len(left.taken)) == ((1, 0) if is_done else (0, 2)), puts
        if not is_done:
            await take_over(checkpoints, left, left.fingerprint, "ann")
            kept = [row for row in checkpoints.store.rows(KEPT) if row.session == NO_SESSION]
        assert tree(work) == tree(own)
        await undo_run(checkpoints, kept[0].run, "ann")
        assert (work / "a").read_text() == "first" and not (work / "b").exists()


async def test_what_a_person_changed_after_a_killed_take_over_is_still_to_be_taken_over(tmp_path: Path) -> None:
    folders, own = await begin_to_take_over(tmp_path / "x", 1)
    checkpoints = folders.checkpoints
    assert checkpoints
    (checkpoints.root / "a").write_text("by a person")
    await recover(checkpoints)
    left = await changes_of(checkpoints, "ses_1", own)
    assert [one.path for one in left.taken] == [b"a"] and (checkpoints.root / "a").read_text() == "by a person"
    [kept] = [row for row in checkpoints.store.rows(KEPT) if row.session == NO_SESSION]
    assert [one.path for one in checkpoints.store.changes(kept.run)] == [b"b"]
