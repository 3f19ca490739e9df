"""The parent of workers, and the socket between the two, where a worker or the parent does not keep up."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from routes.protocol.announcements import Announcements
from routes.workers.channel import CLOSED, READY, Channel
from routes.workers.parent import Parent
from tests.support.replicas.servers import LOOK_S, passed

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
MANY = 600  # more than the socket between the two holds
WORKER = f"""#!{sys.executable}
import os, socket, sys, time
parent = socket.socket(fileno=0)
open(f"started-{{os.getpid()}}", "w").close()
parent.send(b"r")
while not os.path.exists("go"):
    time.sleep(0.01)
while True:
    message, files, _, _ = socket.recv_fds(parent, 1, 1)
    if not message:
        sys.exit()
    for file in files:
        with socket.socket(fileno=file) as client:
            client.send(b"answer")
        parent.send(b"c")
"""


def put(program: Path) -> None:
    program.write_text(WORKER)
    program.chmod(0o700)


def kill_started(folder: Path) -> None:
    for process in folder.glob("started-*"):
        os.kill(int(process.name.rpartition("-")[2]), signal.SIGKILL)


@asynccontextmanager
async def parent_of(program: Path) -> AsyncGenerator[tuple[Parent, int], None]:
    """The parent of one worker, which this program is, and the port."""
    put(program)
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        parent = Parent(listener, [str(program)], os.environ, Announcements())
        running = asyncio.create_task(parent.run(1))
        try:
            yield parent, listener.getsockname()[1]
        finally:
            parent._stop(signal.SIGTERM)
            await running


async def until(true: Callable[[], object]) -> None:
    while not true():
        await passed(LOOK_S)


async def test_no_connection_is_lost_while_the_workers_do_not_keep_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with parent_of(tmp_path / "worker") as (parent, port):
        clients = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(MANY)))
        await until(lambda: parent._held)
        (tmp_path / "go").touch()
        answers = await asyncio.gather(*(reader.read() for reader, _ in clients), return_exceptions=True)
        for _, writer in clients:
            writer.close()
        assert answers == [b"answer"] * MANY


async def test_a_worker_that_cannot_be_started_again_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "go").touch()
    program = tmp_path / "worker"
    async with parent_of(program) as (parent, port):
        await until(lambda: parent._workers and parent._workers[0].takes)
        program.unlink()
        kill_started(tmp_path)
        await until(lambda: "worker 1 cannot be started: No such file" in caplog.text)
        put(program)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b"answer"
        writer.close()


async def test_the_parent_learns_of_each_end_also_when_it_was_frozen() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        channel = Channel(theirs)
        channel.open(asyncio.Protocol, lambda: None)
        for _ in range(5 * MANY):
            channel.closed()
        news = b""
        while news.count(CLOSED) < 5 * MANY:
            news += await asyncio.wait_for(asyncio.get_running_loop().sock_recv(ours, 65_536), 10)
        assert news == READY + CLOSED * 5 * MANY
        asyncio.get_running_loop().remove_reader(theirs)
