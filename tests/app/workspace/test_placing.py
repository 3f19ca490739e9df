"""A file of a message lies in the workspace whole or not at all, and never over another one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.storage.files.kinds import file_of
from app.workspace.placing import create_whole, create_whole_beside, placed
from tests.support.models.pictures import CAT

pytestmark = pytest.mark.anyio
# The kernel kills the process when it has written so much of a file: always in the middle of it.
KILLED_WHILE_WRITING = """
import asyncio, resource, signal, sys
from pathlib import Path
from app.workspace.placing import placed
from app.workspace.received import received_file
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
asyncio.run(placed([received_file(bytes(100_000), "big.bin")], Path(sys.argv[1])))
"""


def names_in(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


async def test_a_kill_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        killed = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path)),
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert await killed.wait() == -signal.SIGXFSZ
    assert names_in(tmp_path) == set()


@pytest.mark.parametrize("create", [create_whole, create_whole_beside])
def test_a_file_is_made_once_with_the_usual_rights(tmp_path: Path, create: Callable[[int, str, bytes], bool]) -> None:
    (tmp_path / "usual").touch()
    with_parent = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert create(with_parent, "new", b"mine")
        for name in ("new", "usual"):
            assert not create(with_parent, name, b"another")
        (tmp_path / "link").symlink_to("nowhere")
        assert not create(with_parent, "link", b"another")
    finally:
        os.close(with_parent)
    assert (tmp_path / "new").read_bytes() == b"mine" and (tmp_path / "usual").read_bytes() == b""
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert names_in(tmp_path) == {"new", "usual", "link"}


async def test_the_same_file_is_placed_once(tmp_path: Path) -> None:
    cat = file_of(CAT, "cat.png")
    paths = [one.attachment.path for one in await placed([cat, cat], tmp_path)]
    assert (names_in(tmp_path), len(paths)) == ({*paths}, 2) == ({"cat.png"}, 2)
