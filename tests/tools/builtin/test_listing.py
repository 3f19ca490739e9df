import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.base.outcome import ToolFailed
from tools.base.workspace import Folder
from tools.builtin import list_files as listing
from tools.builtin.list_files import SHOWN


def list_files(arguments: dict[str, Any], workspace: Path) -> str:
    return listing.list_files(arguments | {"path": Folder(workspace, arguments.get("path", ""))})


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for path in ("a.py", "b.txt", "src/c.py", "src/deep/d.py", ".git/e.py", "node_modules/m/f.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "out").symlink_to("/etc")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "listed"),
    [
        ({}, [".git/", "a.py", "b.txt", "node_modules/", "out", "src/"]),
        ({"path": "src"}, ["c.py", "deep/"]),
        ({"path": "node_modules/m"}, ["f.py"]),
        ({"pattern": "*.py"}, ["a.py", "src/c.py", "src/deep/d.py"]),
        ({"pattern": "**/*.py"}, ["a.py", "src/c.py", "src/deep/d.py"]),
        ({"pattern": "src/*.py"}, ["src/c.py", "src/deep/d.py"]),
        ({"path": "src", "pattern": "*.py"}, ["c.py", "deep/d.py"]),
        ({"pattern": "deep"}, ["src/deep/"]),
        ({"pattern": "*.rs"}, ["(nothing matches *.rs)"]),
    ],
)
def test_what_is_listed(workspace: Path, arguments: dict[str, str], listed: list[str]) -> None:
    assert list_files(arguments, workspace).splitlines() == listed


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("out", "symbolic link"),
        ("..", "outside the workspace"),
        ("/etc", "outside the workspace"),
        ("a.py", "a file is in the way"),
        ("missing", "does not exist"),
    ],
)
def test_what_cannot_be_listed(workspace: Path, path: str, says: str) -> None:
    for pattern in (None, "*"):
        with pytest.raises(ToolFailed, match=says):
            list_files({"path": path, "pattern": pattern}, workspace)


def test_long_lists_are_cut_and_say_so(tmp_path: Path) -> None:
    for number in range(SHOWN + 50):
        (tmp_path / f"{number:03}").touch()
    for arguments in ({}, {"pattern": "*"}):
        *shown, note = list_files(arguments, tmp_path).splitlines()
        assert shown == [f"{number:03}" for number in range(SHOWN)]
        assert note.startswith("[the first 200 of 250")


def test_odd_names_and_an_empty_directory(tmp_path: Path) -> None:
    assert list_files({}, tmp_path) == "(empty directory)"
    (tmp_path / "two\nlines").touch()
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    assert list_files({}, tmp_path).splitlines() == ["two\ufffdlines", "\ufffd"]


@pytest.fixture
def as_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory of a user whom permissions bind: root is not such a user, and becomes one for a while."""
    if os.geteuid():
        yield tmp_path_factory.mktemp("theirs")
        return
    with tempfile.TemporaryDirectory() as made:
        os.chown(made, 65_534, 65_534)
        os.seteuid(65_534)
        try:
            yield Path(made)
        finally:
            os.seteuid(0)


def test_a_directory_that_is_shut_does_not_end_a_search(as_nobody: Path) -> None:
    (as_nobody / "shut").mkdir(mode=0)
    (as_nobody / "a.py").touch()
    try:
        assert list_files({"pattern": "*.py"}, as_nobody) == "a.py"
        for arguments in ({"path": "shut"}, {"path": "shut", "pattern": "*.py"}):
            with pytest.raises(ToolFailed, match="Permission denied"):
                list_files(arguments, as_nobody)
    finally:
        (as_nobody / "shut").chmod(0o700)


def test_a_pattern_has_a_bound(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="more than 1,000 characters"):
        list_files({"pattern": "*a" * 501}, tmp_path)
    assert list_files({"pattern": "*a" * 500}, tmp_path).startswith("(nothing matches")
