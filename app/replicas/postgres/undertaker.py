"""A process beside a replica that kills it when it is frozen past its lease, and with it all that its tools run.

A frozen server cannot end its tools, and another one goes on with its runs: no tool of the first may still be at work
then. The undertaker gets a byte with each confirmed beat; without one for the time in which a replica may act, it
kills its parent. It ends with its parent, whose end of the pipe closes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

PROGRAM = """
import os, select, signal, sys
parent, limit_s = int(sys.argv[1]), float(sys.argv[2])
while select.select([0], [], [], limit_s)[0]:
    if not os.read(0, 4096):
        sys.exit()
if os.getppid() == parent:
    os.kill(parent, signal.SIGKILL)
"""


@asynccontextmanager
async def undertaker(limit_s: float) -> AsyncGenerator[Callable[[], None], None]:
    """Yield the function that says that this process is alive and may act for another `limit_s` seconds."""
    words = (sys.executable, "-I", "-S", "-c", PROGRAM, str(os.getpid()), str(limit_s))
    process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=DEVNULL, start_new_session=True)
    assert process.stdin
    pipe = process.stdin

    def alive() -> None:
        if not pipe.is_closing():
            pipe.write(b".")

    try:
        yield alive
    finally:
        with suppress(ConnectionError):
            pipe.close()
            await pipe.wait_closed()
        await process.wait()
