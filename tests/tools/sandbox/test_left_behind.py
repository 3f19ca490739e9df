from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from app.workspace.private_files import private_reason
from app.workspace.skipped import is_protected
from tests import ROOT
from tests.support.sandbox.sealing import NEEDED, told
from tools.builtin.outbound_effects import file_left
from tools.sandbox.owner_commands import COMMAND_FILES, owner_command
from tools.sandbox.owner_run_paths import PLACES, SEALED, PathRule, Seal, owner_run_reason, sealed_names

FILES = {".gitmodules", ".gitattributes", ".gdbinit", ".lldbinit", ".envrc", ".exrc", ".vimrc", ".nvimrc", ".npmrc"}
FILES |= {".yarnrc", ".bazelrc", ".tool-versions", ".python-version"}


def an_example(place: PathRule) -> str:
    """A path of the place: a file below it where the name stands for a folder."""
    name = place.name.replace("y*ml", "yml").replace("?js", "cjs").replace("config*", "config.toml").replace("*", "x")
    return name if PurePosixPath(name).suffix or name in FILES else f"{name}/x"


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
        (".kiro/settings/mcp.json", "agents"),
        (".clinerules/hooks/x", "agents"),
        (".github/workflows/ci.yml", "push"),
        ("sub/.GitHub/Workflows/ci.yml", "push"),
        (".cargo/config.toml", "cargo"),
        ("crates/a/.cargo/config", "cargo"),
        (".bazelrc", "Bazel"),
        (".gitattributes", "filters"),
        (".tool-versions", "version managers"),
        (".python-version", "version managers"),
        ("x.desktop", "desktop"),
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
        ".github/ISSUE_TEMPLATE.md",
        "workflows/ci.yml",
        ".cargo/registry/index",
        "Makefile",
        "AGENTS.md",
        "src/vscode/tasks.json",
        "a.py",
        "",
    ],
)
def test_other_files_stay_in_the_workspace(path: str) -> None:
    assert owner_run_reason(PurePosixPath(path).parts) is None


def test_what_a_program_obeys_cannot_be_made_where_it_is_used(tmp_path: Path) -> None:
    assert (
        sealed_names(tmp_path)
        == SEALED
        == (".git", ".envrc", ".vscode", ".idea", ".devcontainer", ".devcontainer.json")
    )
    for sign in (".cursor", ".config/zed"):
        (tmp_path / sign).mkdir(parents=True)
    assert sealed_names(tmp_path) == (*SEALED, ".zed", ".cursor")
    assert sealed_names(tmp_path / "missing") == SEALED


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("Makefile", "make"),
        ("sub/folder/GNUmakefile", "make"),
        ("rules.MK", "make"),
        ("Makefile. ", "make"),
        ("justfile", "just"),
        ("package.json", "npm install"),
        ("web/vite.config.mts", "npm run"),
        (".eslintrc.cjs", "npm run"),
        ("pyproject.toml", "pip install"),
        ("tests/conftest.py", "pytest"),
        ("sitecustomize.py", "python"),
        ("build.gradle.kts", "gradle"),
        ("docker-compose.dev.yml", "docker compose up"),
        ("sub/.git", "git"),
        (".envrc", "cd"),
        (".vscode/tasks.json", "code"),
        (".github/workflows/ci.yml", "git push"),
        ("a/.husky/pre-commit", "git commit"),
        (".cargo/config.toml", "cargo"),
    ],
)
def test_a_usual_command_of_the_owner_runs_it(path: str, command: str) -> None:
    row = owner_command(path)
    assert row is not None and row.command == command


@pytest.mark.parametrize(
    "path",
    ["a.py", "Makefile/x", "Makefile.md", "Dockerfile", "package-lock.json", "config.ts", "test_a.py", "make", ""],
)
def test_other_files_run_at_no_usual_command(path: str) -> None:
    assert owner_command(path) is None


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_each_place_has_the_command_that_obeys_it(place: PathRule) -> None:
    row = owner_command(an_example(place))
    assert row is not None and row.command == place.command != ""


def test_the_documents_name_each_file_that_a_command_runs() -> None:
    text = (ROOT / "docs/tools.md").read_text()
    lines = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert [row for row in COMMAND_FILES if not all(f"`{name}`" in lines[row.command] for name in row.names)] == []


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_each_row_that_commands_can_make_says_why(place: PathRule) -> None:
    assert bool(place.left_open) == (place.seal is not Seal.ALWAYS)
    assert not place.signs or place.seal is Seal.THERE
    assert place.seal is Seal.NONE or not set(place.name) & set("*?/")  # a mount closes one name of the root


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_sources_are_sent_and_undone_and_other_places_are_not(place: PathRule) -> None:
    parts = PurePosixPath(an_example(place)).parts
    assert (private_reason(parts) is None) == place.is_source
    assert any(map(is_protected, parts)) != place.is_source


@NEEDED[-1]
@pytest.mark.parametrize("there", [False, True], ids=["missing", "there"])
def test_the_box_closes_what_the_file_tools_ask_about_but_for_rows_that_say_why(
    tmp_path: Path, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command in the box tries the whole table, beside what the file tools say of the same paths."""
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    (work := tmp_path / "work").mkdir()
    tried = {place.name: an_example(place) for place in PLACES if place.name != ".git"}  # test_seals has it
    for path in tried.values() if there else ():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text("theirs")
    told(work, "\n".join(f"mkdir -p {PurePosixPath(path).parent}; echo new > {path}" for path in tried.values()))
    changed = {name for name, path in tried.items() if (work / path).is_file() and (work / path).read_text() == "new\n"}
    closed = {Seal.ALWAYS, Seal.THERE} if there else {Seal.ALWAYS}
    assert changed == {place.name for place in PLACES if place.seal not in closed}
    for path in tried.values():
        effect = file_left({"path": path}, work)
        assert effect is not None and effect.always, path
