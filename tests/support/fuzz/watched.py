"""`dragoman` that writes to stderr where its event loop was held: `python -m tests.support.fuzz.watched serve ...`."""

from __future__ import annotations

import faulthandler
import signal
import socket
import sys

import routes.server
from app.metrics.loop_watchdog import Held, LoopWatchdog
from routes.cli.main import main

HELD_S = 0.015


def report(held: Held) -> None:
    print(f"HELD {1000 * held.cpu_s:.0f} ms: {' < '.join((held.cause, *held.stack))}", file=sys.stderr, flush=True)


class WatchedServer(routes.server._Server):
    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        with LoopWatchdog(report, limit_s=HELD_S, idle_every_s=0.005).watching():
            await super().serve(sockets)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)  # where each thread is, for what takes long beside the loop
    routes.server._Server = WatchedServer  # type: ignore[misc]
    sys.exit(main())
