"""Repositories that name programs: real git runs them, so no command of git there is known only to read or to add."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.rules import ApprovalMode
from app.policy.gate import decide
from app.policy.policy_context import PolicyContext
from app.storage.principals import LOCAL_USER
from tests.support.access.operator_rules import catalogue_tool
from tools.sandbox.git_repository import runs_nothing
from tools.toolbox import Allow, Ask

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
ENV = {"PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"}
ENV |= {f"GIT_{role}_{what}": "ann@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
LIMIT_S = 60


def git(folder: Path, *words: str, fed: str = "") -> str:
    command = ["git", *words]
    run = subprocess.run(
        command, cwd=folder, env=ENV, input=fed, check=True, capture_output=True, timeout=LIMIT_S, text=True
    )
    return run.stdout


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "First")
    (folder / "a.txt").write_text("two\n")  # as long as before: only its content tells
    return folder


def program(tmp: Path) -> Path:
    """It leaves a mark and does as git expects of a program that converts."""
    file = tmp / "planted.sh"
    file.write_text(f'#!/bin/sh\n: > {tmp}/ran\n[ -f "$1" ] && cat "$1" || cat\n')
    file.chmod(0o755)
    return file


def config(text: str) -> Callable[[Path, Path], None]:
    def plant(work: Path, run: Path) -> None:
        with (work / ".git/config").open("a") as file:
            file.write(text.format(run=run))

    return plant


def attributes(text: str, driver: str) -> Callable[[Path, Path], None]:
    def plant(work: Path, run: Path) -> None:
        (work / ".gitattributes").write_text(text)
        config(driver)(work, run)

    return plant


def hook(name: str) -> Callable[[Path, Path], None]:
    def plant(work: Path, run: Path) -> None:
        shutil.copy(run, work / ".git/hooks" / name)

    return plant


def hook_of_the_index(work: Path, run: Path) -> None:
    """Git writes the index, and then runs the hook, if a file's times are others than it noted but its content is not.

    Else it writes only an index that is no newer than one of its files, to the second (its document "racy-git").
    """
    (work / "a.txt").write_text("one\n")
    os.utime(work / "a.txt", (0, 0))
    hook("post-index-change")(work, run)


SIGNATURE = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n a\n -----END PGP SIGNATURE-----\n"


def signed(work: Path, run: Path) -> None:
    config("[log]\n\tshowSignature = true\n[gpg]\n\tprogram = {run}\n")(work, run)
    head, _, message = git(work, "cat-file", "commit", "HEAD").partition("\n\n")
    made = git(work, "hash-object", "-t", "commit", "-w", "--stdin", fed=f"{head}\n{SIGNATURE}\n{message}")
    git(work, "update-ref", "HEAD", made.strip())


def included(work: Path, run: Path) -> None:
    (work / "more.inc").write_text(f"[diff]\n\texternal = {run}\n")
    config("[include]\n\tpath = ../more.inc\n")(work, run)


def of_submodule(work: Path, run: Path) -> None:
    config("[core]\n\tfsmonitor = {run}\n")(repository(work / "sub"), run)
    git(work, "add", "sub")


def elsewhere(work: Path, run: Path) -> None:
    """A `commondir` leads to another config."""
    shutil.copytree(work / ".git", work / "common")
    with (work / "common/config").open("a") as file:
        file.write(f"[diff]\n\texternal = {run}\n")
    (work / ".git/commondir").write_text("../common\n")


def linked(work: Path, run: Path) -> None:
    config("[diff]\n\texternal = {run}\n")(work, run)
    (work / ".git").rename(work / "real")
    (work / ".git").symlink_to("real")


def named_by_a_file(work: Path, run: Path) -> None:
    config("[diff]\n\texternal = {run}\n")(work, run)
    (work / ".git").rename(work / "real")
    (work / ".git").write_text("gitdir: real\n")


def inner(work: Path, run: Path) -> None:
    config("[diff]\n\texternal = {run}\n")(repository(work / "inner"), run)


def bare(work: Path, run: Path) -> None:
    git(work, "clone", "-q", "--bare", ".", "bare")
    with (work / "bare/config").open("a") as file:
        file.write(f"[core]\n\tfsmonitor = {run}\n[diff]\n\texternal = {run}\n")


PLANTED: dict[str, tuple[str, Callable[[Path, Path], None]]] = {
    "fsmonitor": ("git status", config("[core]\n\tfsmonitor = {run}\n")),
    "fsmonitor on one line": ("git status", config("[core] fsmonitor = {run}\n")),
    "fsmonitor after a value of two lines": (
        "git status",
        config("[user]\n\tname = a\\\n[x\n[core]\n\tfsmonitor = {run}\n"),
    ),
    "diff.external": ("git diff", config("[DIFF]\n\tExternal = {run}\n")),
    "textconv": ("git diff", attributes("*.txt diff=own\n", '[diff "own"]\n\ttextconv = {run}\n')),
    "textconv in show": ("git show", attributes("*.txt diff=own\n", '[diff "own"]\n\ttextconv = {run}\n')),
    "diff command": ("git diff", attributes("*.txt diff=own\n", '[diff "own"]\n\tcommand = {run}\n')),
    "filter": ("git status", attributes("*.txt filter=own\n", '[filter "own"]\n\tclean = {run}\n')),
    "filter of add": ("git add -A", attributes("*.txt filter=own\n", '[filter "own"]\n\tclean = {run}\n')),
    "signatures": ("git log", signed),
    "hook of the index": ("git status", hook_of_the_index),
    "hook of a commit": ("git commit -qam x", hook("pre-commit")),
    "hooks elsewhere": ("git commit -qam x", config("[core]\n\thooksPath = {run}.d\n")),
    "included": ("git diff", included),
    "submodule": ("git status", of_submodule),
    "commondir": ("git diff", elsewhere),
    "link": ("git diff", linked),
    "gitdir": ("git diff", named_by_a_file),
    "cd": ("cd inner && git diff", inner),
    "cd twice": ("cd . && cd inner && git diff", inner),
    "-C": ("git --no-pager -C inner diff", inner),
    "bare": ("cd bare && git diff HEAD~0 HEAD -- a.txt; git diff main~0 main", bare),
}


@pytest.mark.parametrize(("command", "plant"), PLANTED.values(), ids=PLANTED)
def test_git_is_no_known_reader_where_a_repository_names_a_program(
    command: str, plant: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    work, run = repository(tmp_path / "work"), program(tmp_path)
    Path(f"{run}.d").mkdir()
    shutil.copy(run, f"{run}.d/pre-commit")
    policy = PolicyContext(ApprovalMode.ASK, boxed=True, workspace=work)
    bash = catalogue_tool("bash")
    assert decide(LOCAL_USER, bash, {"command": command}, policy) == Allow()
    plant(work, run)
    (tmp_path / "ran").unlink(missing_ok=True)
    assert isinstance(decide(LOCAL_USER, bash, {"command": command}, policy), Ask)
    assert decide(LOCAL_USER, bash, {"command": "cat a.txt"}, policy) == Allow()
    if plant is not bare:  # of which only few commands would: it is refused whole
        subprocess.run(["bash", "-c", command], cwd=work, env=ENV, capture_output=True, timeout=LIMIT_S)
        assert (tmp_path / "ran").exists(), "git does not run it: the row shows nothing"


def test_usual_repositories_are_plain(tmp_path: Path) -> None:
    origin, work = repository(tmp_path / "origin"), tmp_path / "work"
    git(tmp_path, "clone", "-q", str(origin), "work")
    git(work, "checkout", "-q", "-b", "own", "--track", "origin/main")
    git(work, "config", "pull.rebase", "true")
    git(work, "config", "user.name", 'Ann # "A" \\ Example')
    repository(work / "vendored")
    for command in ("git status", "cd vendored && git log", f"cd {work} && git -C vendored diff", "cd none; git diff"):
        assert runs_nothing(command, work)
    assert runs_nothing("git status", tmp_path / "none")
    assert runs_nothing("cat digits", work / "a.txt")


@pytest.mark.parametrize("command", ["cd - && git log", "cd a/../b && git log", "cd / && git log", "git -C /usr log"])
def test_a_place_that_is_not_known_is_not_plain(command: str, tmp_path: Path) -> None:
    assert not runs_nothing(command, tmp_path)


def test_what_is_no_file_or_too_large_is_not_plain(tmp_path: Path) -> None:
    folder = repository(tmp_path)
    kept = (folder / ".git/config").read_bytes()
    (folder / ".git/config").write_bytes(kept + b"#" * (1 << 16))
    assert not runs_nothing("git log", folder)
    (folder / ".git/config").unlink()
    os.mkfifo(folder / ".git/config")
    assert not runs_nothing("git log", folder)
    (folder / ".git/config").unlink()
    (folder / ".git/config").symlink_to(tmp_path / "a.txt")
    assert not runs_nothing("git log", folder)
