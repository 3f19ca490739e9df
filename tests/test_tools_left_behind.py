from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from tools.left_behind import leaves_the_box


@pytest.mark.parametrize(
    ("path", "word"),
    [
        (".git/hooks/pre-commit", "hooks"),
        (".git/config", "config"),
        (".git", "config"),
        ("sub/folder/.git/modules/x/hooks/post-checkout", "hooks"),
        (".GIT/config", "hooks"),
        ("mirror.git/config", "config"),
        (".envrc", "direnv"),
        ("sub/.envrc", "direnv"),
        (".vscode/tasks.json", "editors"),
        (".VSCode/settings.json", "editors"),
        (".idea/workspace.xml", "editors"),
        ("all.code-workspace", "editors"),
        (".mcp.json", "agents"),
        (".husky/pre-commit", "hooks"),
    ],
)
def test_what_the_owners_programs_run_leaves_the_box(path: str, word: str) -> None:
    assert word in (leaves_the_box(PurePosixPath(path).parts) or "")


@pytest.mark.parametrize(
    "path", ["git/config", "config", "hooks/pre-commit", ".gitignore", ".github/x", "src/vscode/tasks.json", "a.py", ""]
)
def test_other_files_stay_in_the_workspace(path: str) -> None:
    assert leaves_the_box(PurePosixPath(path).parts) is None
