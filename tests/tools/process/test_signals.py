"""What the server starts has the usual signals, also where the server itself was started with some ignored."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
from contextlib import aclosing
from pathlib import Path

from app.core.hook_rows import HookRow
from app.hooks.callers import run_command
from tests import ROOT
from tests.support.sandbox.jobs import LEVELS, end_of, opened, started
from tools.base.outcome import Result
from tools.base.screen import Window
from tools.builtin.shell import running
from tools.mcp.connection.child import Child
from tools.mcp.connection.server_log import ServerLog
from tools.mcp.model import ServerConfig
from tools.process.kill_group import KillGroups
from tools.process.signals import ENDING, reset_signals
from tools.tool import Context

LIMIT_S = 60
NAMES = """
import signal
print([one.name for one in map(signal.Signals, (1, 2, 3, 15)) if signal.getsignal(one) is signal.SIG_IGN])"""
COMMAND = f"python3 -c '{NAMES}'"
# As a script in the background, and one behind `nohup`, start what they start.
IGNORING = "trap '' HUP INT QUIT TERM; exec \"$0\" -m tests.tools.process.test_signals"


def test_commands_jobs_hooks_and_servers_have_the_default_signals() -> None:
    command = ["sh", "-c", IGNORING, sys.executable]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * LIMIT_S, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [str([number.name for number in ENDING]), *(2 + 3 * len(LEVELS)) * ["[]"]]


def test_this_process_goes_on_ignoring_them() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        reset_signals()
        signal.raise_signal(signal.SIGHUP)
        handler = signal.getsignal(signal.SIGHUP)
        reset_signals()
        assert signal.getsignal(signal.SIGHUP) is handler is not signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


async def main(folder: Path) -> None:
    """Print what is ignored by all that this process starts, a line each."""
    command = sys.executable, "-c", NAMES
    hook = HookRow.model_validate({"name": "h", "on": "before_tool", "kind": "guard", "command": command})
    child = Child(ServerLog(), lambda _: None, KillGroups)
    async with asyncio.timeout(LIMIT_S), opened(folder) as jobs:
        for sandbox in LEVELS:  # first: what the server starts later is reset in the server itself
            job = await started(jobs, folder, COMMAND, sandbox)
            print(*(await end_of(jobs, job.id)).tail)
        print((await run_command(hook, b"", {})).decode().strip())
        await child.start(ServerConfig("s", command=command[0], args=command[1:]))
        await child.woken.wait()
        line = child.take()
        await child.end()
        assert isinstance(line, bytes)
        print(line.decode().strip())
        for sandbox in LEVELS:
            for window in (None, Window()):
                context = Context(folder / "work", LIMIT_S, sandbox, window=window)
                async with aclosing(running("bash", "command")({"command": COMMAND}, context)) as steps:
                    *_, last = [step async for step in steps]
                assert isinstance(last, Result)
                print(last.text.strip())


if __name__ == "__main__":
    exec(NAMES)  # what this process itself ignores
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(Path(made)))
