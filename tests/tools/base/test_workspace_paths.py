"""The promise of the workspace that holds at any moment: a path that changes under a tool's feet leads nowhere."""

from __future__ import annotations

import ctypes
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.base.outcome import ToolFailed
from tools.base.workspace import inside, regular_file, write

_HERE, _EXCHANGE = -100, 2


@contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """Two names swap what they mean, again and again, each time at one stroke."""
    renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    stop = threading.Event()

    def exchange() -> None:
        while not stop.is_set():
            failed = renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)
            assert not failed, os.strerror(ctypes.get_errno())

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def read(workspace: Path) -> bytes:
    with regular_file(workspace, ("d", "f")) as opened:
        return os.read(opened, 100)


def test_a_directory_that_becomes_a_link_leads_nowhere(tmp_path: Path) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    (workspace / "d").mkdir(parents=True)
    outside.mkdir()
    (outside / "f").write_text("secret")
    (workspace / "d" / "f").write_text("fine")
    (workspace / "l").symlink_to(outside)
    seen: dict[object, int] = {}
    with exchanging(workspace / "d", workspace / "l"):
        # Until both have been met, and often; the test's own time limit is the bound.
        while len(seen) < 2 or sum(seen.values()) < 1_000:
            try:
                met: object = read(workspace)
                write(workspace, ("d", "f"), b"fine")
            except ToolFailed as error:
                met = type(error)
            seen[met] = seen.get(met, 0) + 1
    assert seen.keys() == {b"fine", ToolFailed}
    assert [(entry.name, entry.read_text()) for entry in outside.iterdir()] == [("f", "secret")]


def test_a_workspace_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to("real")
    for path in ("a/b", str(tmp_path / "linked/a/b"), str(tmp_path / "real/a/b")):
        assert inside(tmp_path / "linked", path) == ("a", "b")


def test_a_write_that_fails_half_way_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(ToolFailed, match="target cannot be used: File too large"):
            write(tmp_path, ("target",), b"x" * 200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "target").read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["target"]


def test_a_path_is_repeated_only_when_it_can_be_one(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed) as failed:
        inside(tmp_path, "../" * 100_000)
    assert len(str(failed.value)) < 200
