"""The orphan reaper: a killed server leaves no command running, sandboxed or not."""

from __future__ import annotations

import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.sandbox.processes import all_gone, endless

SERVER = """
import asyncio, os, psutil, sys
from pathlib import Path
from tools.catalogue import TOOLS
from tools.sandbox.sandbox import find_sandbox
from tools.tool import Context

async def main(command, workspace, unsafe, kill_the_orphan_reaper=None):
    [bash] = [tool for tool in TOOLS if tool.name == "bash"]
    context = Context(Path(workspace), sandbox=find_sandbox(unsafe=unsafe == "unsafe"))
    print("ready", flush=True)
    if kill_the_orphan_reaper:
        async for seen in bash.run({"command": "true"}, context):
            pass
        for child in psutil.Process().children():
            assert child.cmdline()[3].endswith("orphan_reaper.py"), child
            child.kill()
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    async for seen in bash.run({"command": command}, context):
        print(seen, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def start(command: str, workspace: Path, level: str, *more: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", SERVER, command, str(workspace), level, *more]
    server = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    assert server.stdout.readline() == "ready\n"
    return server


@pytest.mark.parametrize("level", ["boxed", "unsafe"])
def test_a_command_ends_with_its_server(tmp_path: Path, level: str) -> None:
    sleeper = endless()
    with start(f"setsid {sleeper} & {sleeper} & echo up; wait", tmp_path, level) as server:
        assert server.stdout
        assert any("up" in line for line in server.stdout)  # a slow start tells of its progress first
        server.kill()
    assert all_gone(sleeper)


def test_a_killed_orphan_reaper_is_replaced(tmp_path: Path) -> None:
    sleeper = endless()
    with start(f"setsid {sleeper} & {sleeper} & echo up; wait", tmp_path, "unsafe", "kill the reaper") as server:
        assert server.stdout
        assert any("up" in line for line in server.stdout)  # a slow start tells of its progress first
        server.kill()
    assert all_gone(sleeper)


@pytest.mark.parametrize("late_ms", range(0, 24, 2))
def test_a_box_that_was_just_being_started_ends_too(tmp_path: Path, late_ms: int) -> None:
    sleeper = endless()
    with start(f"{sleeper} & echo up; wait", tmp_path, "boxed") as server:
        assert server.stdout
        select.select([server.stdout], [], [], late_ms / 1000)  # killed before it is up, at another moment each time
        server.kill()
    select.select([], [], [], 0.2)  # what was being started may show itself only now
    assert all_gone(sleeper)
    assert all_gone(sleeper)
