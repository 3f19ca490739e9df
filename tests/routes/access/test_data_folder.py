"""The data directory is for its account alone, whatever modes it had and whatever is made in it later."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from app.config.folders import FolderUnusable, lock_data_dir
from app.models.scripted import Scripted
from app.storage.data_dir import OURS, make_private
from tests.support.models.replies import in_background, says
from tests.support.sandbox.accounts import OTHER, needs_root
from tests.support.server.background_jobs import job_of
from tests.support.server.dragoman_process import dragoman_at_home
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio


def modes(folder: Path) -> dict[str, int]:
    return {path.relative_to(folder).as_posix(): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}


def open_to_others(folder: Path) -> list[str]:
    return [name for name, mode in ({".": stat.S_IMODE(folder.stat().st_mode)} | modes(folder)).items() if mode & 0o077]


async def test_the_data_directory_is_its_accounts_alone_whatever_was_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    usual = os.umask(0o022)
    try:
        for folder in ("persona/local", "jobs/old", "keys", "mcp"):
            (data / folder).mkdir(parents=True)
            (data / folder / "file").write_text("x")
        for name in ("dragoman.db", "dragoman.db-wal", "dragoman.db.backup", "lock"):
            (data / name).touch()
        assert data.stat().st_mode & 0o077
        async with serving(tmp_path, Scripted([in_background("echo hello"), says("Good."), says("Fine.")])) as served:
            await job_of(served)
            assert {"dragoman.db-wal", "dragoman.db-shm", "local.token"} <= modes(data).keys()
            assert open_to_others(data) == []
            top = {path.name for path in data.iterdir()}
            assert all(any(Path(name).match(pattern) for pattern in OURS) for name in top), "add it to OURS"
    finally:
        os.umask(usual)


def test_what_is_not_ours_in_the_folder_keeps_its_mode(tmp_path: Path) -> None:
    """A setting that names a home takes nothing from the files of its other programs."""
    (tmp_path / "notes.txt").touch(0o644)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "link").symlink_to(tmp_path / "notes.txt")
    make_private(tmp_path)
    assert modes(tmp_path)["notes.txt"] == 0o644
    assert modes(tmp_path)["jobs"] == 0o700


def test_a_folder_that_is_shared_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(FolderUnusable, match="shared with other accounts"), lock_data_dir(shared):
        pass
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777


def test_a_data_directory_that_is_a_link_is_closed_where_it_leads(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "data"
    (real / "jobs").mkdir(parents=True)
    real.chmod(0o777)
    link.symlink_to("real")
    with lock_data_dir(link):
        assert open_to_others(real) == []


FOREIGN = ("data", "data/local.token", "data/dragoman.db", "data/dragoman.db-wal", "data/keys", "data/persona/local/x")


@pytest.mark.parametrize("name", FOREIGN)
def test_what_another_account_has_put_there_is_refused_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    needs_root()
    foreign = tmp_path / name
    foreign.parent.mkdir(parents=True, exist_ok=True)
    if foreign.name in ("data", "keys"):
        foreign.mkdir(0o777)
    else:
        foreign.touch(0o666)
    os.chown(foreign, OTHER, OTHER)
    before = foreign.stat().st_mode
    with pytest.raises(FolderUnusable) as refused, lock_data_dir(tmp_path / "data"):
        pass
    assert f"{foreign} belongs to another account (user id {OTHER})" in str(refused.value)
    assert "remove it, or run dragoman as that account" in str(refused.value)
    assert foreign.stat().st_mode == before


@pytest.mark.parametrize("name", ["data", "data/dragoman.db", "data/persona/local/x"])
@pytest.mark.parametrize("of_another", ["link", "target"])
def test_a_link_of_another_account_or_to_what_is_theirs_is_refused(tmp_path: Path, name: str, of_another: str) -> None:
    needs_root()
    link, target = tmp_path / name, tmp_path / "elsewhere"
    link.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(0o755)
    link.symlink_to(target)
    foreign = link if of_another == "link" else target
    os.chown(foreign, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(FolderUnusable, match=f"{foreign} belongs to another account"), lock_data_dir(tmp_path / "data"):
        pass
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["local.token", "dragoman.db"])
def test_a_server_does_not_start_on_what_another_account_has_planted(tmp_path: Path, name: str) -> None:
    needs_root()
    (tmp_path / "data").mkdir(0o777)
    planted = tmp_path / "data" / name
    planted.write_text("dgm_local_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n" if name == "local.token" else "")
    os.chown(planted, OTHER, OTHER)
    ended = dragoman_at_home(
        tmp_path, "serve", "--port", "0", "--model-url", "scripted:", "--workspace", str(tmp_path / "work")
    )
    assert ended.returncode == 1
    assert f"{planted} belongs to another account" in ended.stderr and "Traceback" not in ended.stderr
    assert stat.S_IMODE(planted.stat().st_mode) & 0o077, "its mode is its account's matter"
