"""What the owner's programs run or obey stays as it is, whatever boxed commands do, and git goes on working in them."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.jobs import end_of, opened, started, until
from tools.left_behind import SEALED
from tools.sandbox import Bubblewrap, find_sandbox
from tools.seals import Seals
from tools.shell import running
from tools.tool import Context, Result

pytestmark = [
    pytest.mark.skipif(not shutil.which("git"), reason="there is no git"),
    pytest.mark.skipif(not isinstance(find_sandbox(), Bubblewrap), reason="bubblewrap does not work here"),
]
bash = running("bash", "command")
GIT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org"}
GIT |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in GIT.items()}


def told(workspace: Path, command: str) -> Result:
    async def main() -> Result:
        async with asyncio.timeout(60), aclosing(bash({"command": command}, boxed(workspace))) as news:
            *_, last = [seen async for seen in news]
        assert isinstance(last, Result)
        return last

    return asyncio.run(main())


def boxed(workspace: Path) -> Context:
    return Context(workspace, 60, find_sandbox(levels=["bubblewrap"]))


def git(folder: Path, *words: str) -> str:
    """What the owner's git says."""
    run = subprocess.run(["git", *words], cwd=folder, env=GIT, capture_output=True, text=True, timeout=30, check=True)
    return run.stdout.strip()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (made := tmp_path / "work").mkdir()
    return made


@pytest.fixture
def repository(workspace: Path) -> Path:
    git(workspace, "init", "-q", "-b", "main")
    (workspace / "file").write_text("one\n")
    git(workspace, "add", "file")
    git(workspace, "commit", "-qm", "first")
    return workspace


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """What the owner's programs would run or obey, byte for byte."""
    found = {}
    for name in (".git/config", ".git/config.worktree", ".git/commondir", ".git/hooks", ".git/modules", *SEALED[1:]):
        for path in (folder / name, *sorted((folder / name).rglob("*"))):
            parts = path.relative_to(folder).parts
            if os.path.lexists(path) and ("modules" not in parts or {"config", "hooks"} & set(parts)):
                content = path.read_bytes() if path.is_file() else b""
                found[str(path.relative_to(folder))] = (path.lstat().st_mode, content)
    return found


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


OUTSIDE = "cat {0}/private.txt {0}/../private.txt 2>/dev/null; echo evil | tee -a {0}/private.txt > /dev/null; ls {0}"
LED_OUT = {
    "a module": ("ln -s ../../.. .git/modules/a; echo > config; mkdir -p d; echo > d/config", ".git/modules/a"),
    "a folder's module": (
        "echo > config; git init -q sub; mkdir -p sub/.git/modules; ln -s ../../../.. sub/.git/modules/a",
        "sub/.git/modules/a",
    ),
    "hooks below": ("git init -q sub; rm -rf sub/.git/hooks; ln -s ../../.. sub/.git/hooks", "sub/.git/hooks"),
    "a folder": ("git init -q sub; mv sub sub2; ln -s .. sub", "sub"),
    "a made repository": ("ln -s ../../other/.git .git/made-in-sandbox", ".git/made-in-sandbox"),
    "an editor's": ("ln -s .. .zed; ln -s .. .npmrc; ln -s .. .mcp.json", ".npmrc"),
}


@pytest.mark.parametrize("there", [False, True], ids=["no repository", "a repository"])
@pytest.mark.parametrize(("planted", "way"), LED_OUT.values(), ids=LED_OUT)
def test_a_link_leads_no_later_command_out_of_the_workspace(
    tmp_path: Path, workspace: Path, planted: str, way: str, there: bool
) -> None:
    (tmp_path / "private.txt").write_text("PRIVATE")
    (tmp_path / "other").mkdir()
    for folder in (tmp_path / "other", *([workspace] if there else [])):
        git(folder, "init", "-q")
        git(folder, "config", "alias.mine", "status")
        (folder / ".git/modules").mkdir()
    before = state(tmp_path / "other")
    told(workspace, planted)
    for _ in range(2):
        result = told(workspace, OUTSIDE.format(way))
        assert "PRIVATE" not in result.text and "other" not in result.text
    assert told(workspace, "echo works").text == "works"
    assert (tmp_path / "private.txt").read_text() == "PRIVATE" and state(tmp_path / "other") == before
    assert {path.name for path in tmp_path.iterdir()} == {"private.txt", "other", "work"}


SWAPPING = """
import ctypes, os
pairs = []
for path, out in (('sub/.git/hooks', '../../..'), ('.npmrc', '..'), ('.zed', '..'), ('sub/.git', '../..')):
    os.makedirs(path, exist_ok=True)
    os.symlink(out, path + '.link')
    pairs.append((path.encode(), (path + '.link').encode()))
libc = ctypes.CDLL(None)
print('begun', flush=True)
while not os.path.exists('go'):
    for one, other in pairs:
        libc.renameat2(-100, one, -100, other, 2)
"""


def test_a_name_that_is_swapped_while_others_start_leads_none_of_them_out(tmp_path: Path) -> None:
    (tmp_path / "private.txt").write_text("PRIVATE")
    seen = asyncio.run(while_names_are_swapped(tmp_path))
    assert len(seen) == 12 and not [text for text in seen if "PRIVATE" in text or "bwrap" in text]


async def while_names_are_swapped(tmp_path: Path) -> list[str]:
    (tmp_path / "work").mkdir()
    context = boxed(tmp_path / "work")
    look = "cat .npmrc/private.txt .zed/private.txt sub/.git/hooks/private.txt sub/.git/private.txt 2>/dev/null; echo x"
    seen = []
    async with opened(tmp_path) as jobs:
        assert isinstance(context.sandbox, Bubblewrap)
        job = await started(jobs, tmp_path, f"exec python3 -c {shlex.quote(SWAPPING)}", context.sandbox)
        await until(jobs, job.id, lambda glance: "begun" in glance.tail)
        for _ in range(12):
            # Its own links lead a command to what its box shows; what is mounted by name would be the machine's.
            async with aclosing(bash({"command": look}, context)) as news:
                *_, last = [step async for step in news]
            assert isinstance(last, Result)
            seen.append(last.text)
        (tmp_path / "work/go").touch()
        await end_of(jobs, job.id)
    return seen


@pytest.mark.parametrize("name", ["COMMIT_EDITMSG", "logs/HEAD", "FETCH_HEAD", "info/exclude"])
def test_links_that_git_would_write_through_are_gone_when_commands_end(
    tmp_path: Path, repository: Path, name: str
) -> None:
    (profile := tmp_path / "profile").write_text("theirs\n")
    (repository / ".git/theirs").symlink_to("config")
    told(repository, f"echo 'touch evil' > .git/SQUASH_MSG; ln -sf {profile} .git/{name}; mkfifo .git/pipe")
    assert not os.path.lexists(repository / ".git" / name) and not (repository / ".git/pipe").exists()
    (repository / "file").write_text("changed\n")
    git(repository, "commit", "-qam", "mine")
    assert profile.read_text() == "theirs\n" and (repository / ".git/theirs").is_symlink()


def test_what_a_command_leaves_breaks_no_later_one(repository: Path) -> None:
    left = "mkdir -p .git/made-in-sandbox/config .git/modules/x; mkfifo .git/modules/x/hooks"
    told(repository, f"{left}; ln -s /nowhere .git/modules/config; touch -d 2001-02-03T04:05:06Z .git/made-in-sandbox")
    for _ in range(2):
        assert told(repository, "git status --short && echo works").text.endswith("works")
    assert not [name for name in (".envrc", ".vscode", ".idea", ".git/commondir") if (repository / name).exists()]


def test_commands_that_run_together_have_the_seals_that_the_first_decided_on(workspace: Path) -> None:
    first = Seals(workspace).begin()
    (workspace / ".npmrc").symlink_to("..")
    second = Seals(workspace).begin()
    (workspace / ".npmrc").unlink()
    (workspace / ".npmrc").mkdir()
    third = Seals(workspace).begin()
    assert first.mounts == second.mounts == third.mounts and ".npmrc" not in " ".join(third.mounts)
    for held in (first, third, second):
        Seals(workspace).end(held)
    assert [path.name for path in workspace.iterdir()] == [".npmrc"]
    last = Seals(workspace).begin()
    assert str(workspace / ".npmrc") in last.mounts
    Seals(workspace).end(last)


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


SERVER = """
import asyncio, sys
from contextlib import aclosing
from pathlib import Path
from tests.test_tools_seals import bash, boxed

async def main(workspace):
    command = "ln -s /etc .git/FETCH_HEAD; echo begun; sleep 1000"
    async with aclosing(bash({"command": command}, boxed(workspace))) as news:
        async for seen in news:
            print(getattr(seen, "tail", ""), flush=True)

asyncio.run(main(Path(sys.argv[1])))
"""


def test_what_a_killed_server_left_is_removed_by_the_next_command(repository: Path) -> None:
    words = [sys.executable, "-c", SERVER, str(repository)]
    with subprocess.Popen(words, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert any("begun" in line for line in server.stdout)
        server.send_signal(signal.SIGKILL)
    assert (repository / ".vscode").exists()
    told(repository, "touch here")
    assert {path.name for path in repository.iterdir()} == {".git", "file", "here"}
    assert not os.path.lexists(repository / ".git/FETCH_HEAD") and not (repository / ".git/commondir").exists()
    assert git(repository, "status", "--short") == "?? here"
