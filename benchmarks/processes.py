"""Child processes for the benchmarks: started, asked for their port, measured, stopped."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

START_S = 60
CPU_CLOCK_OF_PROCESS = 2  # Linux's clock_getcpuclockid(3), which Python has for threads only


@contextmanager
def child(
    *args: str, port_pattern: str = r"(\d+)", python: str = sys.executable, folder: Path | None = None
) -> Iterator[tuple[int, psutil.Process]]:
    """`python ARGS` in the folder, and the port that it prints on its first lines."""
    with subprocess.Popen([python, *args], stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            assert process.stdout
            for line in process.stdout:
                if found := re.search(port_pattern, line):
                    break
            else:
                raise RuntimeError(f"{args} ended without a port, exit code {process.wait(START_S)}")
            # A full pipe would stop a server that logs its requests.
            threading.Thread(target=deque, args=(process.stdout, 0), daemon=True).start()
            yield int(found[1]), psutil.Process(process.pid)
        finally:
            process.terminate()


def until_listening(port: int) -> None:
    """For servers that know their port before they listen."""
    given_up = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > given_up:
                raise
            time.sleep(0.2)


@contextmanager
def dragoman(*flags: str, checkout: Path | None = None) -> Iterator[tuple[int, psutil.Process]]:
    """A whole server in a folder of its own; of another checkout, with that one's virtual environment."""
    python = str(checkout / ".venv" / "bin" / "python") if checkout else sys.executable
    with tempfile.TemporaryDirectory() as folder:
        places = ("--data-dir", f"{folder}/data", "--workspace", f"{folder}/work", "--port", "0")
        Path(folder, "work").mkdir()
        command = ("-m", "routes", "serve", *places, "--log-level", "warning", *flags)
        with child(*command, port_pattern=r"http://localhost:(\d+)", python=python, folder=checkout) as started:
            yield started


def cpu_s(process: psutil.Process) -> float:
    """CPU time of a process and its threads, to the nanosecond: psutil has hundredths of a second."""
    return time.clock_gettime(~process.pid << 3 | CPU_CLOCK_OF_PROCESS)
