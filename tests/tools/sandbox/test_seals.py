"""What the owner's programs run or obey stays as it is, whatever boxed commands do, and git goes on working in them."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.sandbox.jobs import end_of, opened, started, until
from tests.support.sandbox.sealing import NEEDED, bash, boxed, git, repository, state, told, workspace
from tools.base.outcome import Result
from tools.sandbox.sandbox import Bubblewrap

pytestmark = NEEDED
__all__ = ("repository", "workspace")  # fixtures


EVIL = "printf '[core]\\n\\tfsmonitor = touch /tmp/evil-ran\\n'"
ATTACKS = (
    f"{EVIL} >> .git/config",
    f"{EVIL} > new && mv -f new .git/config",
    f"{EVIL} > new && ln -f new .git/config",
    "git config core.fsmonitor 'touch evil'",
    "rm -f .git/config; " + f"{EVIL} > .git/config",
    "echo 'touch evil' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "mv .git/hooks .git/old; mkdir .git/hooks",
    "rmdir .git/hooks; ln -s ../evil .git/hooks",
    f"mv .git .old && cp -r .old .git && {EVIL} >> .git/config",
    f"rm -rf .git/config .git/hooks; mkdir -p evil; {EVIL} > evil/config; ln -sf ../evil/config .git/config",
    f"cp -r .git evil && {EVIL} >> evil/config; echo ../evil > .git/commondir; cp evil/HEAD n; mv -f n .git/commondir",
    "git config extensions.worktreeConfig true && git config --worktree core.fsmonitor 'touch evil'",
    "mkdir -p .vscode && echo '{}' > .vscode/tasks.json",
    "echo '{}' > .vscode/settings.json; echo '{}' > .vscode/launch.json",
    "mkdir -p .idea && echo x > .idea/workspace.xml",
    "echo 'touch evil' > .envrc",
    "rm -rf .envrc .vscode .idea; ln -s evil .envrc; ln -s evil .vscode; mv file .idea",
    'mkdir d; echo x > d/tasks.json; mv -T d .vscode; python3 -c \'import os; os.rename("d", ".vscode")\'',
    'python3 -c \'import ctypes; ctypes.CDLL(None).renameat2(-100, b"file", -100, b".envrc", 2)\'',
    f"{EVIL} >> .git/modules/inner/config; echo x > .git/modules/inner/hooks/post-checkout; mv .git/modules .git/m",
    f"mv .git/modules/inner x; mkdir -p .git/modules/inner; {EVIL} > .git/modules/inner/config",
)


@pytest.mark.parametrize("there", [False, True], ids=["missing", "there"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_command_changes_what_the_owners_programs_obey(repository: Path, attack: str, there: bool) -> None:
    inner = repository / ".git/modules/inner"
    git(repository, "init", "-q", "--bare", str(inner))
    if there:
        (repository / ".vscode").mkdir()
        (repository / ".vscode/tasks.json").write_text("{}")
        (repository / ".idea").mkdir()
        (repository / ".idea/modules.xml").write_text("<xml/>")
        (repository / ".envrc").write_text("export A=b\n")
    else:
        shutil.rmtree(repository / ".git/hooks")
    before = state(repository)
    told(repository, attack)
    (repository / ".git/hooks").mkdir(exist_ok=True)
    after = state(repository)
    after.pop(".git/hooks"), before.pop(".git/hooks", None)
    assert after == before
    git(repository, "status")


@pytest.mark.parametrize(
    "attack",
    [
        "mkdir -p .git/hooks && echo 'touch evil' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit",
        "rmdir .git; echo 'gitdir: evil' > .git; mkdir -p evil",
        "ln -s evil .git; git init -q evil",
        "echo x > .envrc; mkdir -p .vscode/x .idea/x; echo x > .vscode/tasks.json",
    ],
)
def test_what_is_not_there_cannot_be_made(workspace: Path, attack: str) -> None:
    told(workspace, attack)
    assert {path.name for path in workspace.iterdir()} <= {"evil"}


def test_a_repository_is_made_in_a_sub_folder_or_by_the_owner(workspace: Path) -> None:
    refused = told(workspace, "git init -q")
    assert not refused.ok and "make a repository in a sub-folder" in refused.text and not list(workspace.iterdir())
    assert told(workspace, "git init -q sub && git -C sub commit -q --allow-empty -m first").ok
    git(workspace, "init", "-q")
    assert (
        told(workspace, "echo one > file && git add file && git commit -qm first && git log --format=%s").text
        == "first"
    )
    assert "git -c name=value" in told(workspace, "git config core.pager cat").text


@pytest.mark.parametrize("name", [".npmrc", ".yarnrc.yml", ".mcp.json", ".pre-commit-config.yaml", ".zed", ".claude"])
def test_what_other_programs_of_the_owner_obey_is_closed_where_it_is(workspace: Path, name: str) -> None:
    file = workspace / name if "." in name[1:] or name == ".npmrc" else workspace / name / "settings.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text("theirs")
    path = file.relative_to(workspace)
    result = told(workspace, f"echo evil > {path}; rm -rf {name}; mv {name} x; echo evil > new; mv -f new {path}")
    assert file.read_text() == "theirs" and "write_file" in result.text


def test_what_programs_obey_that_the_owner_uses_cannot_be_made(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := workspace.parent / "home").mkdir()
    (home / ".cursor").mkdir()
    monkeypatch.setenv("HOME", str(home))
    told(workspace, "mkdir -p .cursor/x; echo '{}' > .cursor/mcp.json")
    assert not list(workspace.iterdir())
    tail = asyncio.run(of_a_job(workspace.parent, "mkdir -p .cursor/x; echo '{}' > .cursor/mcp.json; ls -A"))
    assert ".cursor" in tail and not list(workspace.iterdir())


async def of_a_job(tmp_path: Path, script: str) -> tuple[str, ...]:
    async with opened(tmp_path) as jobs:
        sandbox = boxed(tmp_path / "work").sandbox
        assert isinstance(sandbox, Bubblewrap)
        return (await end_of(jobs, (await started(jobs, tmp_path, script, sandbox)).id)).tail


@pytest.mark.parametrize("name", [".vscode", ".idea", ".envrc", ".git", ".claude"])
def test_an_empty_folder_of_the_owner_stays(workspace: Path, name: str) -> None:
    (workspace / name).mkdir(parents=True)
    for _ in range(2):
        told(workspace, "echo x > .vscode/x; ls -A")
        assert (workspace / name).is_dir() and {path.name for path in workspace.iterdir()} == {name}


def test_what_the_owner_puts_in_place_of_a_placeholder_stays(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as jobs:
            sandbox = boxed(tmp_path / "work").sandbox
            assert isinstance(sandbox, Bubblewrap)
            job = await started(jobs, tmp_path, "echo begun; until [ -e go ]; do sleep 0.05; done", sandbox)
            await until(jobs, job.id, lambda glance: "begun" in glance.tail)
            (tmp_path / "work/.vscode/tasks.json").write_text("{}")
            (tmp_path / "work/.idea/x").write_text("")
            (tmp_path / "work/.idea/x").unlink()  # it is theirs now
            (tmp_path / "work/go").touch()
            await end_of(jobs, job.id)

    asyncio.run(main())
    assert {path.name for path in (tmp_path / "work").iterdir()} == {".vscode", ".idea", "go"}
    assert (tmp_path / "work/.vscode/tasks.json").read_text() == "{}"


def test_git_clean_and_stash_pass_over_placeholders(repository: Path) -> None:
    result = told(repository, "echo a > new; mkdir dir; echo b > dir/f; git clean -fd && git status --porcelain")
    assert result.text == "Removing dir/\nRemoving new"
    stash = "echo a > new; echo b >> file; git stash -qu && git status --porcelain && ls && git stash pop -q && cat new"
    assert told(repository, stash).text == "file\na"
    assert git(repository, "status", "--porcelain", "--ignored") == "M file\n?? new"


WORK = """set -e
git status --short; echo two >> file; git stash -q; git stash pop -q; git commit -qam second
git switch -qc side; echo three >> file; git commit -qam third; git switch -q main; git merge -q side
git tag v1; git branch --list | wc -l; git rebase -q main side; git switch -q main; git gc -q; git diff HEAD~1 | wc -l
git clone -q . inner; git -C inner log --oneline | wc -l; git worktree add -q tree side; git -C tree status --short
git log --format=%s; git fsck; ls -A
"""


def test_git_works_on_in_a_repository(repository: Path) -> None:
    result = told(repository, WORK)
    assert result.ok, result.text
    lines = result.text.splitlines()
    assert lines[0] == "2" and lines[2] == "3" and lines[3:6] == ["third", "second", "first"]
    assert git(repository, "log", "--format=%s") == "third\nsecond\nfirst" and git(repository, "status", "-s") != ""
    assert not [name for name in (".envrc", ".vscode", ".idea", ".git/commondir") if (repository / name).exists()]


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("git config user.name x", "git -c name=value"),
        ("echo x > .envrc", "write_file"),
        ("mkdir .vscode/x", "write_file"),
        ("python3 -c \"open('.idea/x', 'w')\"", "write_file"),
        ("git clone -q . there && cd there && git clone -q ../there .", None),
    ],
)
def test_a_command_that_meets_a_seal_is_told_what_to_do(repository: Path, command: str, advice: str | None) -> None:
    assert (advice or "[") in told(repository, command).text or (advice is None)


def test_other_commands_keep_their_seals_when_one_ends(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    tail = asyncio.run(of_two_commands(tmp_path))
    assert tail[-1] == "tried" and [path.name for path in (tmp_path / "work").iterdir()] == ["go"]


async def of_two_commands(tmp_path: Path) -> tuple[str, ...]:
    context = boxed(tmp_path / "work")
    async with opened(tmp_path) as jobs:
        assert isinstance(context.sandbox, Bubblewrap)
        script = "echo begun; until [ -e go ]; do sleep 0.05; done; echo x > .envrc; echo x > .git/config; echo tried"
        job = await started(jobs, tmp_path, script, context.sandbox)
        await until(jobs, job.id, lambda glance: "begun" in glance.tail)
        async with aclosing(bash({"command": "touch go; ls -A"}, context)) as news:
            *_, last = [seen async for seen in news]
        assert isinstance(last, Result) and last.ok
        return (await end_of(jobs, job.id)).tail
