"""Durable before visible: what a client has seen survives `kill -9` of the server, and each run still ends once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

ROOT = Path(__file__).parent.parent
TERMINAL = ("run.finished", "run.failed")


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A whole server with the scripted model on the data in `folder`; its URL and its process."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "DRAGOMAN_DATA_DIR": str(folder / "data")}
    flags = ("--port", "0", "--model-url", "scripted:", "--workspace", str(folder / "work"))
    command = [sys.executable, "-m", "routes", "serve", *flags]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            found = re.search(r"http://localhost:\d+", process.stdout.readline())
            assert found
            yield found[0], process
        finally:
            process.kill()


def read_until_killed(url: str, process: subprocess.Popen[str], events: int) -> tuple[str, list[str]]:
    """Start a turn, kill the server once `events` events have been seen; the run and the frames seen whole."""
    seen = b""
    with httpx2.stream("POST", f"{url}/chat", json={"message": "Hello"}, timeout=30) as response:
        run = response.headers["x-run-id"]
        try:
            for block in response.iter_bytes():
                seen += block
                if seen.count(b"\n\n") >= events:
                    process.send_signal(signal.SIGKILL)
        except httpx2.TransportError:
            pass  # the connection dies with the server
    frames = seen.decode().split("\n\n")
    return run, frames[:-1]  # what follows the last blank line is half an event


@pytest.mark.parametrize("events", [1, 3, 6, 9])
def test_what_was_seen_survives_a_kill(tmp_path: Path, events: int) -> None:
    with server(tmp_path) as (url, process):
        run, seen = read_until_killed(url, process, events)
    assert len(seen) >= events
    with server(tmp_path) as (url, _):
        stored = httpx2.get(f"{url}/runs/{run}/events", timeout=30).text.split("\n\n")[:-1]
        session = httpx2.get(f"{url}/runs/{run}").json()["session"]
        again = httpx2.post(f"{url}/chat", json={"message": "And?", "session": session}, timeout=30).text
    assert stored[: len(seen)] == seen
    stored = [frame.removeprefix("retry: 1000\n") for frame in stored]
    assert [frame.split("\n")[0] for frame in stored] == [f"id: {number}" for number in range(1, len(stored) + 1)]
    types = [frame.split("\n")[1].removeprefix("event: ") for frame in stored]
    assert [kind for kind in types if kind in TERMINAL] == [types[-1]]
    assert "event: run.finished" in again
