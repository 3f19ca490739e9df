"""A small process that outlives the server for a moment, and ends what the server's commands have left.

bubblewrap dies with its parent, but tells the kernel so only some milliseconds after its start; and without a sandbox
nothing dies with anything. Run as a script, it waits until the server is gone and kills every process that carries one
of its marks in the environment.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

MARK = "DRAGOMAN_CALL"
_LINGER_S = 1.0  # what was being started when the server died has shown itself by then
_PAUSE_S = 0.05


@cache
def watched() -> str:
    """The beginning of every mark that is watched over; the first call starts the watcher (about 15 ms)."""
    server = secrets.token_hex(8)
    read_end, _kept = os.pipe()  # the write end stays open, here alone, as long as this process lives
    command = [sys.executable, "-I", "-S", __file__, server]
    duplicate = [(os.POSIX_SPAWN_DUP2, read_end, 0)]
    os.posix_spawn(command[0], command, {}, file_actions=duplicate, setsid=True)
    os.close(read_end)
    return server


def _outlive(server: str) -> None:
    while os.read(0, 4096):
        pass
    until = time.monotonic() + _LINGER_S
    while time.monotonic() < until:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and f"{MARK}={server}".encode() in _environment(entry):
                with suppress(ProcessLookupError):
                    os.kill(int(entry.name), signal.SIGKILL)
        time.sleep(_PAUSE_S)


def _environment(process: Path) -> bytes:
    with suppress(OSError):
        return (process / "environ").read_bytes()
    return b""


if __name__ == "__main__":
    _outlive(sys.argv[1])
