"""A command in a terminal of its own, at each level of the sandbox: what it is, who can type, what is left of it."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.processes import all_gone, endless
from tools.base.outcome import Progress, Result
from tools.base.screen import Window
from tools.builtin.shell import running
from tools.sandbox.sandbox import NoSandbox, Sandbox, find_sandbox
from tools.tool import Context

pytestmark = pytest.mark.anyio

LIMIT_S = 60
PUSH = "import fcntl, termios\ntry: fcntl.ioctl(0, termios.TIOCSTI, b'!')\nexcept OSError: pass"


def box_of(level: str) -> Sandbox:
    found = find_sandbox(unsafe=True) if level == "none" else find_sandbox(levels=(level,))
    if isinstance(found, NoSandbox):
        pytest.skip(found.reason)
    return found


def open_terminals() -> list[Path]:
    return [end for end in Path("/proc/self/fd").iterdir() if os.path.realpath(end) == "/dev/ptmx"]


@pytest.mark.parametrize("level", ["bubblewrap", "landlock", "none"])
async def test_a_command_has_a_terminal_that_is_no_others(level: str, tmp_path: Path) -> None:
    sleeper = endless()
    command = (
        f'stty size; echo own > /dev/tty; python3 -c "{PUSH}"; read -t 0 && read -n 1 pushed; '
        f"read -p 'Go? ' answer; echo \"$answer, $COLUMNS\"; setsid {sleeper} & {sleeper}"
    )
    context = Context(tmp_path, LIMIT_S, box_of(level), window=Window(24, 100))
    typed, late = 0, None
    async with asyncio.timeout(LIMIT_S), aclosing(running("bash", "command")({"command": command}, context)) as steps:
        async for step in steps:
            if isinstance(step, Result):
                assert step.exit_code == 130 and not step.ok
                assert step.text.splitlines()[0] == "24 100" and "yes, 100\n^C" in step.text
                assert "own" in step.text or "/dev/tty" in step.text  # Landlock does not open it
                continue
            assert isinstance(step, Progress) and step.type_in
            late = step.type_in
            tail = "\n".join(step.tail)
            if typed == 0 and tail.endswith("Go? "):
                typed = late(b"yes\r")
            elif typed == 4 and "yes, 100" in tail:
                typed += late(b"\x03")
    assert typed == 5 and late and late(b"late") == 0
    assert all_gone(sleeper)
    assert not open_terminals()


async def test_a_terminal_that_is_not_read_takes_a_bounded_line(tmp_path: Path) -> None:
    context = Context(tmp_path, LIMIT_S, box_of("none"), window=Window())
    command = {"command": "echo begun; sleep 60"}
    async with asyncio.timeout(LIMIT_S), aclosing(running("bash", "command")(command, context)) as steps:
        async for step in steps:
            if isinstance(step, Progress) and step.type_in:
                taken = [step.type_in(b"line\n" * 200) for _ in range(40)]
                break
    assert taken[0] == 1_000 and taken[-1] == 0
