"""read_file, write_file and edit_file: what they answer, and what they refuse."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.base.outcome import ToolFailed
from tools.builtin import files
from tools.builtin.files import EDIT_BYTES, PAGE_CHARACTERS, SKIPPED_BYTES
from tools.catalogue import TOOLS as ROWS
from tools.tool import ToolList

Answer = Callable[[dict[str, Any], Path], str]


def read_file(arguments: dict[str, Any], workspace: Path) -> str:
    return files.read_file(with_paths("read_file", arguments, workspace)).text


def write_file(arguments: dict[str, Any], workspace: Path) -> str:
    return files.write_file(with_paths("write_file", arguments, workspace))


def edit_file(arguments: dict[str, Any], workspace: Path) -> str:
    return files.edit_file(with_paths("edit_file", arguments, workspace))


def with_paths(name: str, arguments: dict[str, Any], workspace: Path) -> dict[str, Any]:
    return ToolList(ROWS).by_name[name].with_paths(arguments, workspace)


def test_a_short_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert read_file({"path": "a.txt"}, tmp_path) == "one\ntwo\n"
    assert read_file({"path": str(tmp_path / "a.txt")}, tmp_path) == "one\ntwo\n"
    assert read_file({"path": "./x/../a.txt", "offset": 2}, tmp_path) == "two\n"
    (tmp_path / "empty").touch()
    assert read_file({"path": "empty"}, tmp_path) == "(empty file)"


@pytest.mark.parametrize("line", ["short", "x" * 3_000, "é🐪" * 2_000, ""])
def test_pages_joined_are_the_file(tmp_path: Path, line: str) -> None:
    text = "".join(f"{number}{line}\n" for number in range(30 if line else 20_000))
    (tmp_path / "a.txt").write_text(text)
    joined, offset = "", 1
    while True:
        page = read_file({"path": "a.txt", "offset": offset}, tmp_path)
        body, cut, hint = page.rpartition("[Lines ")
        if not cut:
            break
        assert len(body) <= PAGE_CHARACTERS
        joined += body
        offset = int(hint.partition("offset=")[2].rstrip("]"))
    assert joined + page == text


def test_a_line_longer_than_a_page_is_cut_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 50_000 + "\nlast")
    page = read_file({"path": "a.txt"}, tmp_path)
    assert page.startswith("x" * PAGE_CHARACTERS + "\n[Only the first 20,000 characters of line 1")
    assert read_file({"path": "a.txt", "offset": 2}, tmp_path) == "last"


@pytest.mark.parametrize(("text", "lines"), [("a\nb\n", 2), ("a\nb", 2), ("a\n" * 100_000, 100_000)])
def test_an_offset_past_the_end_names_the_last_line(tmp_path: Path, text: str, lines: int) -> None:
    (tmp_path / "a.txt").write_text(text)
    assert read_file({"path": "a.txt", "offset": lines}, tmp_path)
    for beyond in (lines + 1, lines + 2, 10**9):
        with pytest.raises(ToolFailed, match=f"has only {lines} lines"):
            read_file({"path": "a.txt", "offset": beyond}, tmp_path)


def test_pages_are_not_sought_in_a_file_without_end(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.write(b"text\n" * 2_000)
        file.truncate(1 << 42)
    with pytest.raises(ToolFailed, match=f"not in its first {SKIPPED_BYTES:,} bytes: print it with python"):
        read_file({"path": "big", "offset": 10**9}, tmp_path)


def test_what_was_too_long_to_compare_is_not_compared(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n" * EDIT_BYTES)
    answer = write_file({"path": "a.txt", "content": "y"}, tmp_path)
    assert answer == "Wrote a.txt (1 bytes).\n[a.txt: was longer than 5,242,880 bytes, too long to compare]"


def test_binary_is_said_to_be_binary(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(ToolFailed, match="binary file of 6 bytes"):
        read_file({"path": "a.bin"}, tmp_path)
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    assert read_file({"path": "latin"}, tmp_path) == "caf\ufffd"
    with pytest.raises(ToolFailed, match=r"not UTF-8 text \(byte 3\)"):
        edit_file({"path": "latin", "old": "caf", "new": "x"}, tmp_path)


def test_writing_makes_directories_and_answers_with_a_diff(tmp_path: Path) -> None:
    answer = write_file({"path": "a/b/c.txt", "content": "one\n"}, tmp_path)
    assert answer == "Created a/b/c.txt (4 bytes).\n--- a/b/c.txt\n+++ a/b/c.txt\n@@ -0,0 +1 @@\n+one"
    answer = write_file({"path": "a/b/c.txt", "content": "two\n"}, tmp_path)
    assert answer.startswith("Wrote a/b/c.txt") and answer.endswith("-one\n+two")
    assert (tmp_path / "a/b/c.txt").read_bytes() == b"two\n"
    assert os.listdir(tmp_path / "a/b") == ["c.txt"]  # noqa: PTH208


def test_a_replaced_file_keeps_its_mode_and_a_new_one_obeys_the_umask(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    write_file({"path": "run.sh", "content": "new"}, tmp_path)
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    (tmp_path / "plain").touch()
    write_file({"path": "new", "content": ""}, tmp_path)
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_editing_replaces_the_only_match(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 2\n")
    answer = edit_file({"path": "a.py", "old": "y = 2", "new": "y = 3"}, tmp_path)
    assert answer == "Edited a.py.\n--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n x = 1\n-y = 2\n+y = 3"
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 3\n"


def test_editing_keeps_the_line_ends_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    edit_file({"path": "a.txt", "old": "one\ntwo", "new": "1\n2"}, tmp_path)
    assert (tmp_path / "a.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"
    edit_file({"path": "a.txt", "old": "three", "new": "3\r\n4\n5"}, tmp_path)
    assert (tmp_path / "a.txt").read_bytes() == b"1\r\n2\r\n3\r\n4\r\n5\r\n"


def test_mixed_line_ends_can_be_edited_on_both_sides(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r\nthree\nfour\n")
    edit_file({"path": "a.txt", "old": "three\nfour", "new": "3\n4"}, tmp_path)
    edit_file({"path": "a.txt", "old": "one\ntwo", "new": "1\n2"}, tmp_path)
    assert (tmp_path / "a.txt").read_bytes() == b"1\r\n2\r\n3\n4\n"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("retrun x", "y", "not in a.py.*exactly.*\n.*nearest lines are:\n2:     return x"),
        ("zzzzzzz", "y", "not in a.py"),
        ("x", "y", "2 times"),
        ("aa", "b", "1 times or more"),
        ("", "y", "old is empty"),
        ("def", "def", "the same"),
        ("def", "\ud800", "lone surrogate"),
    ],
)
def test_an_edit_that_cannot_be_made_says_why_and_changes_nothing(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    text = "def f(x):\n    return x\n# aaa\n"
    (tmp_path / "a.py").write_text(text)
    with pytest.raises(ToolFailed, match=says):
        edit_file({"path": "a.py", "old": old, "new": new}, tmp_path)
    assert (tmp_path / "a.py").read_text() == text


def test_a_file_too_long_to_edit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * (EDIT_BYTES + 1))
    with pytest.raises(ToolFailed, match="longer than 5,242,880 bytes"):
        edit_file({"path": "long", "old": "x", "new": "y"}, tmp_path)


def _with_content(answer: Answer) -> Callable[[str, Path], str]:
    def call(path: str, workspace: Path) -> str:
        return answer({"path": path, "content": "new", "old": "the secret", "new": "new"}, workspace)

    return call


TOOLS = {answer.__name__: _with_content(answer) for answer in (read_file, write_file, edit_file)}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace full of traps, and a secret outside of it."""
    outside, inside = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    inside.mkdir()
    (outside / "secret").write_text("the secret")
    (inside / "file").write_text("the secret")
    (inside / "real").mkdir()
    (inside / "link").symlink_to(outside / "secret")
    (inside / "linked").symlink_to(outside)
    (inside / "real" / "up").symlink_to("../../outside")
    (inside / "dangling").symlink_to(outside / "new")
    os.mkfifo(inside / "fifo")
    return inside


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("../outside/secret", "outside the workspace"),
        ("real/../../outside/secret", "outside the workspace"),
        ("{outside}/secret", "outside the workspace"),
        ("/etc/passwd", "outside the workspace"),
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
        ("linked/secret", "a symbolic link"),
        ("real/up/secret", "a symbolic link"),
        ("fifo", "a FIFO"),
        ("real", "a directory"),
        (".", "a directory"),
        ("", "a directory"),
        ("file/below", "a file is in the way"),
        ("file\0", "NUL"),
        ("\ud800", "not valid text"),
        ("x" * 300, "File name too long"),
        ("d/" * 3000 + "x", "at most 4,096 bytes"),
    ],
)
def test_no_tool_leaves_the_workspace_or_opens_what_is_no_file(
    workspace: Path, tool: str, path: str, says: str
) -> None:
    outside = workspace.parent / "outside"
    with pytest.raises(ToolFailed, match=says):
        TOOLS[tool](path.format(outside=outside), workspace)
    assert (outside / "secret").read_text() == "the secret"
    assert [entry.name for entry in outside.iterdir()] == ["secret"]


def test_devices_are_refused() -> None:
    for call in TOOLS.values():
        with pytest.raises(ToolFailed, match="a device"):
            call("null", Path("/dev"))


@pytest.mark.parametrize("tool", TOOLS)
def test_a_missing_file(workspace: Path, tool: str) -> None:
    if tool == "write_file":
        assert TOOLS[tool]("new", workspace).startswith("Created new")
        return
    with pytest.raises(ToolFailed, match="missing does not exist: see what there is with list_files"):
        TOOLS[tool]("missing", workspace)


def test_a_workspace_that_cannot_be_written() -> None:
    with pytest.raises(ToolFailed, match="made cannot be used: "):
        write_file({"path": "made", "content": ""}, Path("/sys"))


def test_a_missing_workspace(tmp_path: Path) -> None:
    for call in TOOLS.values():
        with pytest.raises(ToolFailed, match="gone does not exist"):
            call("file", tmp_path / "gone")
