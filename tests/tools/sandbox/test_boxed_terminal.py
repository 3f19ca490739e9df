"""A command in a terminal of its own, at each level of the sandbox: what it is, who can type, what is left of it."""

from __future__ import annotations

import asyncio
import os
import select
import tty
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.sandbox.processes import all_gone, endless
from tools.base.outcome import Progress, Result
from tools.base.screen import Window
from tools.builtin.shell import running
from tools.sandbox.sandbox import NoSandbox, Sandbox, Unboxed, find_sandbox
from tools.tool import Context

pytestmark = pytest.mark.anyio

LIMIT_S = 60
PUSH = "import fcntl, termios\ntry: fcntl.ioctl(0, termios.TIOCSTI, b'!')\nexcept OSError: pass"


def box_of(level: str) -> Sandbox:
    found = find_sandbox(unsafe=True) if level == "none" else find_sandbox(levels=(level,))
    if isinstance(found, NoSandbox):
        pytest.skip(found.reason)
    return found


async def ended(box: Sandbox, folder: Path, command: str, window: Window | None) -> Result:
    context = Context(folder, LIMIT_S, box, window=window)
    async with asyncio.timeout(LIMIT_S), aclosing(running("bash", "command")({"command": command}, context)) as steps:
        *_, last = [step async for step in steps]
    assert isinstance(last, Result)
    return last


def open_terminals() -> list[Path]:
    return [end for end in Path("/proc/self/fd").iterdir() if os.path.realpath(end) == "/dev/ptmx"]


@pytest.mark.parametrize("level", ["bubblewrap", "landlock", "none"])
async def test_a_command_has_a_terminal_that_is_no_others(level: str, tmp_path: Path) -> None:
    sleeper = endless()
    command = (
        f'stty size; echo own > /dev/tty; python3 -c "{PUSH}"; read -t 0 && read -n 1 pushed; '
        f"read -p 'Go? ' answer; echo \"$answer, $(stty size)\"; setsid {sleeper} & {sleeper}"
    )
    context = Context(tmp_path, LIMIT_S, box_of(level), window=Window(24, 100))
    typed, late = 0, None
    async with asyncio.timeout(LIMIT_S), aclosing(running("bash", "command")({"command": command}, context)) as steps:
        async for step in steps:
            if isinstance(step, Result):
                assert step.exit_code == 130 and not step.ok
                assert step.text.splitlines()[0] == "24 100" and "yes, 30 90\n^C" in step.text
                assert "own" in step.text or "/dev/tty" in step.text  # Landlock does not open it
                continue
            assert isinstance(step, Progress) and step.type_in
            late = step.type_in
            tail = "\n".join(step.tail)
            if typed == 0 and tail.endswith("Go? "):
                assert step.resize
                step.resize(Window(30, 90))
                typed = late(b"yes\r")
            elif typed == 4 and "yes, 30 90" in tail:
                typed += late(b"\x03")
    assert typed == 5 and late and late(b"late") == 0
    assert all_gone(sleeper)
    assert not open_terminals()


PUSH_INTO_ALL = """
import fcntl, glob, os, termios
for end in glob.glob('/proc/self/fd/*') + glob.glob('/dev/pts/*'):
    try: fcntl.ioctl(os.open(end, os.O_RDWR | os.O_NOCTTY), termios.TIOCSTI, b'!')
    except OSError: pass
print('over')"""
# On a terminal, pagers and editors wait for keys, and programs do more than they do on a pipe.
LONG = """
seq 200 > n; less n; less -N n | tail -1; seq 200 | more; bash -c 'seq 99 | less'; PAGER=less python3 -c 'help(int)'
git init -q r; cd r; for i in $(seq 50); do git commit -q --allow-empty -m "$i"; done
git log --format=%s; git -c core.pager=less log --format=%s; git status; git commit --allow-empty
git rebase -q -i HEAD~3; git checkout -q -b b; git commit -q --allow-empty --amend; git log --format=%s -1
ls -l --time-style=+ n ../n; grep -rn 199 ../n; man --version | head -c 3; printf '\033[31mred\033[m\ta\r\n%0300d\n' 7
"""


async def test_the_model_reads_the_same_with_and_without_a_terminal(tmp_path: Path) -> None:
    texts = []
    for name, window in (("piped", None), ("shown", Window(40, 100))):
        (tmp_path / name).mkdir()
        texts.append((await ended(box_of("bubblewrap"), tmp_path / name, LONG, window)).text)
    assert texts[0] == texts[1] and texts[0].count("\n") > 700
    shown = await ended(box_of("bubblewrap"), tmp_path, "sh -c 'seq 200 > n; less n; tput cols'", Window(40, 100))
    assert shown.text.endswith("199\n200\n100")  # by its path less waits for no key, but shows a page


async def test_keys_reach_no_other_terminal_even_without_the_filter_of_calls(tmp_path: Path) -> None:
    box = box_of("bubblewrap")
    assert not isinstance(box, Unboxed)
    box = replace(box, limits=replace(box.limits, opened=""))
    server, persons = os.openpty()
    try:
        tty.setraw(persons)
        os.set_inheritable(persons, True)
        script = f"python3 - <<'END'\n{PUSH_INTO_ALL}\nEND"
        assert (await ended(box, tmp_path, script, Window())).text.endswith("over")
        assert not select.select([persons], [], [], 0)[0]
    finally:
        os.close(server)
        os.close(persons)


async def test_a_terminal_that_is_not_read_takes_a_bounded_line(tmp_path: Path) -> None:
    context = Context(tmp_path, LIMIT_S, box_of("none"), window=Window())
    command = {"command": "echo begun; sleep 60"}
    async with asyncio.timeout(LIMIT_S), aclosing(running("bash", "command")(command, context)) as steps:
        async for step in steps:
            if isinstance(step, Progress) and step.type_in:
                taken = [step.type_in(b"line\n" * 200) for _ in range(40)]
                break
    assert taken[0] == 1_000 and taken[-1] == 0
