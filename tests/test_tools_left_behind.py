from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from tools.sandbox.owner_run_paths import SEALED, owner_run_reason, sealed_names


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
        (".pre-commit-config.yaml", "commit"),
        (".direnv/profile.rc", "direnv"),
        ("mise.toml", "mise"),
        (".zed/settings.json", "editors"),
        (".helix/languages.toml", "editors"),
        (".devcontainer/devcontainer.json", "editors"),
        (".npmrc", "package managers"),
        ("packages/a/.npmrc", "package managers"),
        (".yarnrc.yml", "package managers"),
        (".pnpmfile.cjs", "package managers"),
        *((f"{name}/x", "agents") for name in (".claude", ".cursor", ".gemini", ".codex", ".windsurf", ".continue")),
        (".aider.conf.yml", "agents"),
        ("opencode.json", "agents"),
    ],
)
def test_what_the_owners_programs_run_leaves_the_box(path: str, word: str) -> None:
    assert word in (owner_run_reason(PurePosixPath(path).parts) or "")


@pytest.mark.parametrize(
    "path",
    [
        "git/config",
        "config",
        "hooks/pre-commit",
        ".gitignore",
        ".github/x",
        "Makefile",
        "AGENTS.md",
        ".tool-versions",
        "src/vscode/tasks.json",
        "a.py",
        "",
    ],
)
def test_other_files_stay_in_the_workspace(path: str) -> None:
    assert owner_run_reason(PurePosixPath(path).parts) is None


def test_what_a_program_obeys_cannot_be_made_where_it_is_used(tmp_path: Path) -> None:
    assert sealed_names(tmp_path) == SEALED == (".git", ".envrc", ".vscode", ".idea")
    for sign in (".cursor", ".config/zed"):
        (tmp_path / sign).mkdir(parents=True)
    assert sealed_names(tmp_path) == (*SEALED, ".zed", ".cursor")
    assert sealed_names(tmp_path / "missing") == SEALED
