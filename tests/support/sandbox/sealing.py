"""What the tests of seals share: a workspace with and without a repository, commands in a box, the owner's own git."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from contextlib import aclosing
from pathlib import Path

import pytest

from tools.base.outcome import Result
from tools.builtin.shell import running
from tools.sandbox.owner_run_paths import SEALED
from tools.sandbox.sandbox import Bubblewrap, find_sandbox
from tools.tool import Context

NEEDED = [
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
