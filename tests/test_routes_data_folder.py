"""The data directory is for its account alone, whatever modes it had and whatever is made in it later."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from app.data_folder import OURS, make_private
from app.providers.scripted import Scripted
from routes.folders import Unusable, only_server
from tests.serving import serving
from tests.test_routes_jobs import in_background, job_of, says

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
    with pytest.raises(Unusable, match="shared with other accounts"), only_server(shared):
        pass
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
