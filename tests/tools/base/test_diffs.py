import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.base.diffs import DIFF_CHARACTERS, unified_diff

lines = st.lists(st.sampled_from("abcd"), max_size=40)


@pytest.mark.skipif(not shutil.which("patch"), reason="the command patch is not installed")
@settings(max_examples=30, deadline=None)
@given(before=lines, after=lines)
def test_patch_makes_the_new_file_of_the_old(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], after: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("diff")
    old, new = "".join(f"{line}\n" for line in before), "".join(f"{line}\n" for line in after)
    diff = unified_diff("file", old, new)
    if old == new:
        assert diff == "[file: nothing changed]"
        return
    Path(folder / "file").write_text(old)
    subprocess.run(["patch", "-s", "file"], input=diff + "\n", cwd=folder, text=True, check=True, timeout=30)
    # patch removes a file that becomes empty.
    assert ((folder / "file").read_text() if (folder / "file").exists() else "") == new


def test_hunks_are_numbered_from_the_start_of_the_file() -> None:
    before = "".join(f"{number}\n" for number in range(100_000))
    diff = unified_diff("f", before, before.replace("\n77777\n", "\nnew\n"))
    assert "@@ -77775,7 +77775,7 @@\n 77774\n 77775\n 77776\n-77777\n+new\n 77778" in diff


@pytest.mark.parametrize(
    ("before", "after", "diff"),
    [
        ("a\n", "a\r\n", "[f: only line ends changed]"),
        ("", "x\n" * 5_000, "--- f\n+++ f\n[0 lines replaced by 5,000]"),
    ],
)
def test_what_is_not_shown_is_said(before: str, after: str, diff: str) -> None:
    assert unified_diff("f", before, after) == diff


def test_a_diff_is_bounded() -> None:
    diff = unified_diff("f", "", "x" * 100_000)
    assert len(diff) < DIFF_CHARACTERS + 100 and "more characters of diff" in diff
