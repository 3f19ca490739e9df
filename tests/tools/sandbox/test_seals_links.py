"""Whatever names, links and pipes commands leave in a workspace lead no mount, no server and no git out of it."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.sandbox.jobs import end_of, opened, started, until
from tests.support.sandbox.sealing import NEEDED, bash, boxed, git, repository, state, told, workspace
from tools.base.outcome import Result
from tools.base.workspace import OwnFolder
from tools.sandbox.sandbox import Bubblewrap
from tools.sandbox.sealed_paths import Seals

pytestmark = NEEDED
__all__ = ("repository", "workspace")  # fixtures


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


SERVER = """
import asyncio, sys
from contextlib import aclosing
from pathlib import Path
from tests.support.sandbox.sealing import bash, boxed

async def main(workspace):
    command = "ln -s /etc .git/FETCH_HEAD; echo begun; sleep 1000"
    async with aclosing(bash({"command": command}, boxed(workspace))) as news:
        async for seen in news:
            print(getattr(seen, "tail", ""), flush=True)

asyncio.run(main(Path(sys.argv[1])))
"""


def test_what_a_killed_server_left_is_removed_by_the_next_command(repository: Path) -> None:
    words = [sys.executable, "-c", SERVER, str(repository)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert any("begun" in line for line in server.stdout)
        server.send_signal(signal.SIGKILL)
    assert (repository / ".vscode").exists()
    told(repository, "touch here")
    assert {path.name for path in repository.iterdir()} == {".git", "file", "here"}
    assert not os.path.lexists(repository / ".git/FETCH_HEAD") and not (repository / ".git/commondir").exists()
    assert git(repository, "status", "--short") == "?? here"


def test_nothing_is_removed_behind_a_link_in_the_place_of_an_own_folder(tmp_path: Path) -> None:
    home, other = tmp_path.resolve() / "work", tmp_path / "other"
    for folder in (home / "one", other):
        for name in ("objects", "refs"):
            (folder / ".git" / name).mkdir(parents=True)
        (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (link := other / ".git" / "packed-refs").symlink_to("/dev/null")
    seals = Seals(OwnFolder.below(home, "one"))
    held = seals.begin()
    (home / "one").rename(home / "two")
    (home / "one").symlink_to(other)
    seals.end(held)
    assert link.is_symlink()
