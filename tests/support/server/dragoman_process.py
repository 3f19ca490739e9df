"""`dragoman` in a process of its own, forked from one that has imported it (tests/support/server/fork_server.py)."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

import httpx2

from tests import ROOT
from tests.support.server.serving import NO_TLS

LIMIT_S = 60


@cache
def _requests() -> socket.socket:
    """The socket of the process that forks, which ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = (sys.executable, "-m", "tests.support.server.fork_server", str(theirs.fileno()))
    forking = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()
    atexit.register(forking.wait)
    atexit.register(ours.close)  # the last comes first
    return ours


def _forked(
    words: tuple[str, ...], environ: Mapping[str, str], stdout: int, stderr: int, terminal: int | None = None
) -> socket.socket:
    """Ask for a process; the socket that tells its id and its exit code, a line each."""
    request = {"words": words, "environ": dict(environ), "cwd": str(ROOT), "terminal": terminal is not None}
    ours, theirs = socket.socketpair()
    with theirs, Path(os.devnull).open("rb") as nothing:
        stdin = nothing.fileno() if terminal is None else terminal
        socket.send_fds(_requests(), [json.dumps(request).encode()], [stdin, stdout, stderr, theirs.fileno()])
    return ours


class DragomanProcess:
    """As an asyncio subprocess whose stdout is a pipe. Use `started` to make one, or `started_on` for a terminal."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader, news: asyncio.StreamReader) -> None:
        self.pid = pid
        self.stdout = stdout  # nothing comes from it when that is a terminal
        self._ended = asyncio.create_task(news.readline())

    @property
    def returncode(self) -> int | None:
        return int(self._ended.result()) if self._ended.done() else None

    async def wait(self) -> int:
        return int(await asyncio.shield(self._ended))

    async def rest(self) -> bytes:
        """What it still wrote to stdout until its end."""
        written = await self.stdout.read()
        await self.wait()
        return written

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and its keeper has not said so yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@asynccontextmanager
async def started(
    *words: str, environ: Mapping[str, str], stderr: IO[bytes] | None = None
) -> AsyncGenerator[DragomanProcess, None]:
    """`dragoman` with these arguments and no other environment; killed in the end if it still runs."""
    read_end, write_end = os.pipe()
    news = _forked(words, environ, write_end, stderr.fileno() if stderr else 2)
    os.close(write_end)
    stdout = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(read_end, "rb", buffering=0)
    )
    try:
        async with _watched(news, stdout) as process:
            yield process
    finally:
        pipe.close()


@asynccontextmanager
async def started_on(terminal: int, *words: str, environ: Mapping[str, str]) -> AsyncGenerator[DragomanProcess, None]:
    """As a shell starts it: the terminal is its own, so that Ctrl-C reaches it."""
    async with _watched(_forked(words, environ, terminal, terminal, terminal), asyncio.StreamReader()) as process:
        yield process


@asynccontextmanager
async def _watched(news: socket.socket, stdout: asyncio.StreamReader) -> AsyncGenerator[DragomanProcess, None]:
    reader, writer = await asyncio.open_connection(sock=news)
    process = DragomanProcess(int(await reader.readline()), stdout, reader)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()
        writer.close()


def run_dragoman(*words: str, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """One subcommand until its end, with what it wrote."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with _forked(words, environ, out.fileno(), err.fileno()) as news:
            news.settimeout(LIMIT_S)
            with news.makefile() as lines:
                code = [int(line) for line in lines][-1]
        written = [file.read().decode() for file in (out, err) if not file.seek(0)]
    return subprocess.CompletedProcess(["dragoman", *words], code, *written)


@asynccontextmanager
async def server(
    folder: Path, model_url: str, *more: str, stderr: IO[bytes] | None = None
) -> AsyncGenerator[tuple[httpx2.AsyncClient, DragomanProcess], None]:
    """A whole server on the data in `folder`: a client of it, and its process."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "DRAGOMAN_DATA_DIR": str(folder / "data")}
    environ["DRAGOMAN_GENERATED_TITLES"] = "never"  # the tests' models have an answer for each request of theirs
    flags = ("--port", "0", "--model-url", model_url, "--model", "m", "--tool-calls", "fenced", "--workspace")
    async with started("serve", *flags, str(folder / "work"), *more, environ=environ, stderr=stderr) as process:
        found = re.search(rb"http://localhost:\d+", await process.stdout.readline())
        assert found
        url = found[0].decode()
        async with httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False, verify=NO_TLS) as client:
            yield client, process


def dragoman_at_home(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """The command, in a home of its own, until it ends."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "DRAGOMAN_DATA_DIR": str(folder / "data")}
    return run_dragoman(*args, environ=environ)
