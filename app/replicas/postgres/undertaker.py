"""A process beside a replica that kills it when it is frozen past its lease, and with it all that its tools run.

A frozen server cannot end its tools, and another one goes on with its runs: no tool of the first may still be at work
then. With each confirmed beat the undertaker learns how long the server may live, on a clock that both have; after
that it kills its parent. It ends with its parent, whose end of the pipe closes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

from tools.process.signals import reset_signals

PROGRAM = """
import os, select, signal, sys, time
parent, until, rest = int(sys.argv[1]), float(sys.argv[2]), b""
while select.select([0], [], [], max(0, until - time.monotonic()))[0]:
    data = os.read(0, 4096)
    if not data:
        sys.exit()
    *lines, rest = (rest + data).split(b"\\n")
    if lines:
        until = float(lines[-1])
if os.getppid() == parent:
    os.kill(parent, signal.SIGKILL)
"""


@asynccontextmanager
async def undertaker(until: float) -> AsyncGenerator[Callable[[float], None], None]:
    """Yield the function that takes the monotonic time until which this process may live; at first it is `until`."""
    words = (sys.executable, "-I", "-S", "-c", PROGRAM, str(os.getpid()), str(until))
    reset_signals()
    process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=DEVNULL, start_new_session=True)
    assert process.stdin
    pipe = process.stdin

    def alive(until: float) -> None:
        if not pipe.is_closing():
            pipe.write(b"%f\n" % until)

    try:
        yield alive
    finally:
        with suppress(ConnectionError):
            pipe.close()
            await pipe.wait_closed()
        await process.wait()
