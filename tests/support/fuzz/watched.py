"""`dragoman` that writes to stderr where its event loop was held: `python -m tests.support.fuzz.watched serve ...`.

A thread has the loop call it back, and looks where the loop's thread is when that has computed for HELD_S of CPU
without doing so. Deterministic in one thing: a busy machine holds up the thread, not the count of CPU.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import routes.server
from routes.cli.main import main
from tests import ROOT

HELD_S = float(os.environ.get("HELD_MS", "15")) / 1000
LOOK_S = 0.003
INNERMOST = 7


def frames(frame: FrameType | None) -> Iterator[str]:
    while frame:
        path = Path(frame.f_code.co_filename)
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) and ".venv" not in path.parts else path.name
        yield f"{name}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back


def watch(loop: asyncio.AbstractEventLoop, thread: int) -> None:
    clock = time.pthread_getcpuclockid(thread)
    beat = [0.0]

    def back() -> None:
        beat[0] = time.clock_gettime(clock)
        pending.clear()

    pending = threading.Event()
    looked, where = 0.0, ""
    while True:
        time.sleep(LOOK_S)
        cpu = time.clock_gettime(clock)
        if not pending.is_set():
            if where:
                print(f"HELD {1000 * (beat[0] - looked):.0f} ms: {where}", file=sys.stderr, flush=True)
            looked, where = cpu, ""
            pending.set()
            loop.call_soon_threadsafe(back)
        elif cpu - looked > HELD_S and not where:
            stack = list(frames(sys._current_frames().get(thread)))
            where = " < ".join(stack[:INNERMOST])


class WatchedServer(routes.server._Server):
    async def serve(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        here = (asyncio.get_running_loop(), threading.get_ident())
        threading.Thread(target=watch, args=here, daemon=True).start()
        await super().serve(sockets)  # type: ignore[arg-type]


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # where each thread is, for what takes long beside the loop
    routes.server._Server = WatchedServer  # type: ignore[misc]
    sys.exit(main())
