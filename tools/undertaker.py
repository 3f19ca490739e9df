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


def watched() -> str:
    """The beginning of every mark that is watched over.

    The first call starts the watcher (about 15 ms), and so does the first one after it was killed.
    """
    watcher = _watcher()
    watcher.keep_up()
    return watcher.server


class _Watcher:
    def __init__(self) -> None:
        self.server = secrets.token_hex(8)
        self._pid: int | None = None
        self._read_end, self._kept = os.pipe()  # the write end stays open, here alone, as long as this process lives

    def keep_up(self) -> None:
        """Start it unless it runs."""
        if self._pid is not None:
            with suppress(ChildProcessError):
                if os.waitpid(self._pid, os.WNOHANG) == (0, 0):
                    return
        command = [sys.executable, "-I", "-S", __file__, self.server]
        duplicate = [(os.POSIX_SPAWN_DUP2, self._read_end, 0)]
        self._pid = os.posix_spawn(command[0], command, {}, file_actions=duplicate, setsid=True)


_watcher = cache(_Watcher)


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
