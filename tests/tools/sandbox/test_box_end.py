"""However a boxed command tries to outlive its end, nothing of it runs afterwards: call and job, root and user."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import aclosing
from itertools import cycle, product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.nightly import at_night
from tests.support.sandbox.accounts import NOBODY, launched, python_of_nobody
from tests.support.sandbox.jobs import ANN, LEVELS, opened, started, until
from tests.support.sandbox.processes import all_gone, endless
from tools.base.outcome import Progress
from tools.builtin.shell import running
from tools.sandbox.sandbox import Sandbox
from tools.tool import Context

# What an ordinary user's server does, where no control group and (`naked`) no filter of system calls comes to help.
SERVER = """
import asyncio, sys
from contextlib import aclosing
from pathlib import Path
from msgspec.structs import replace
from tests.support.sandbox.processes import all_gone
from tests.support.sandbox.jobs import end_of, opened, started, until
from tools.sandbox.sandbox import Bubblewrap, find_sandbox
from tools.builtin.shell import running
from tools.tool import Context, Progress

async def main(folder, filtered, way, sleeper, command):
    box = find_sandbox(levels=["bubblewrap"])
    if not isinstance(box, Bubblewrap):
        print("off:", box.reason)
        return
    opened_file = box.limits.opened if filtered == "filtered" else ""
    box = replace(box, limits=replace(box.limits, groups=(), opened=opened_file))
    if way.startswith("job"):
        async with opened(folder) as jobs:
            job = await started(jobs, folder, command, box)
            if way == "job-cancelled":
                await until(jobs, job.id, lambda glance: "attacked" in glance.tail[-1:])
                await jobs.cancel(job.id, "ann")
            seen = await end_of(jobs, job.id)
        print(*seen.tail, "gone" if all_gone(sleeper) else "left")
        return
    (folder / "work").mkdir()
    context = Context(folder / "work", 60, box)
    async with asyncio.timeout(60), aclosing(running("bash", "command")({"command": command}, context)) as news:
        async for seen in news:
            if way == "cancelled" and isinstance(seen, Progress) and "attacked" in seen.tail:
                break
    # Before this process ends, and its orphan reaper looks for what is left.
    print(getattr(seen, "text", ""), *getattr(seen, "tail", ""), "gone" if all_gone(sleeper) else "left")

asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
"""
# Has the box's first process take its wish back to die with bubblewrap.
TRACING = """python3 - <<'END'
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype, libc.ptrace.argtypes = ctypes.c_long, [ctypes.c_long] * 2 + [ctypes.c_void_p] * 2
registers = (ctypes.c_ulonglong * 27)()
old = (ctypes.c_ulonglong * 27)()
if libc.ptrace(16, 1, None, None) == 0:
    os.waitpid(1, 0x40000000)
    libc.ptrace(12, 1, None, ctypes.byref(registers))
    ctypes.memmove(old, registers, ctypes.sizeof(old))
    registers[10], registers[14], registers[13], registers[15] = 157, 1, 0, (1 << 64) - 1  # prctl(PR_SET_PDEATHSIG, 0)
    registers[16] -= 2
    libc.ptrace(13, 1, None, ctypes.byref(registers))
    libc.ptrace(9, 1, None, None)
    os.waitpid(1, 0x40000000)
    libc.ptrace(12, 1, None, ctypes.byref(registers))
    print("cleared", registers[10])
    libc.ptrace(13, 1, None, ctypes.byref(old))
    libc.ptrace(17, 1, None, None)
else:
    print("refused", ctypes.get_errno())
END
"""
CLEARING = "python3 -c 'import ctypes; ctypes.CDLL(None).prctl(1, 0)'; "
STAYING = "(trap '' TERM HUP; setsid env -i {0} > /dev/null 2>&1 &) ; setsid {0} > /dev/null 2>&1 & echo attacked"
USERS = ("own", "nobody")
WAYS = ("ends", "cancelled", "job", "job-cancelled")
ATTACKS = at_night(tuple(product(WAYS, USERS)), tuple(zip(WAYS, cycle(USERS), strict=False)))


def served(user: str, *words: str) -> str:
    python, uid = (sys.executable, os.getuid()) if user == "own" else (python_of_nobody(), NOBODY)
    if not python:
        pytest.skip("only root can be nobody, where a Python with the libraries is open to all")
    with TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        (place := Path(folder) / "place").mkdir()
        os.chown(place, uid, -1)
        run: subprocess.CompletedProcess[str] = launched([python, "-c", SERVER, str(place), *words], uid, "")
    assert run.returncode == 0, run.stderr
    if run.stdout.startswith("off:"):
        pytest.skip(run.stdout)
    return run.stdout


@pytest.mark.parametrize(
    ("way", "user"), at_night(tuple(product(WAYS, USERS)), tuple(zip(WAYS, cycle(USERS), strict=False)))
)
def test_a_command_that_unties_its_box_leaves_nothing(way: str, user: str) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the attack is written for x86-64")
    sleeper = endless()
    tail = "; sleep 1000" if "cancelled" in way else ""
    told = served(user, "naked", way, sleeper, TRACING + CLEARING + STAYING.format(sleeper) + tail)
    assert "attacked" in told and "cleared 0" in told, "the attack itself does not work"
    assert "gone" in told and all_gone(sleeper)


@pytest.mark.parametrize("user", USERS)
def test_no_process_of_the_box_can_be_traced(user: str) -> None:
    assert "refused 1" in served(user, "filtered", "ends", endless(), TRACING)


TIDYING = "trap 'sleep 1; echo > tidied; exit 7' TERM; echo begun; while :; do sleep 1000 & wait; done"


SCRIPTS = (TIDYING, f"({TIDYING}) & wait", f'setsid bash -c "{TIDYING}" & wait')


@pytest.mark.parametrize("box", LEVELS, ids=lambda box: box.level)
@pytest.mark.parametrize("script", at_night(SCRIPTS, SCRIPTS[-1:]))
@pytest.mark.parametrize("job", [False, True], ids=["call", "job"])
def test_a_handler_of_one_second_finishes_its_work(tmp_path: Path, box: Sandbox, script: str, job: bool) -> None:
    async def call() -> None:
        context = Context(tmp_path / "work", 60, box)
        async with aclosing(running("bash", "command")({"command": script}, context)) as news:
            async for seen in news:
                if isinstance(seen, Progress) and "begun" in seen.tail:
                    return

    async def background() -> None:
        async with opened(tmp_path) as jobs:
            begun = await started(jobs, tmp_path, script, box)
            await until(jobs, begun.id, lambda glance: "begun" in glance.tail)
            await jobs.cancel(begun.id, ANN)

    async def main() -> None:
        async with asyncio.timeout(60):
            await (background() if job else call())

    (tmp_path / "work").mkdir()
    asyncio.run(main())
    assert (tmp_path / "work" / "tidied").exists()
