"""Three servers of either version behind nginx, and all that a fault can reach."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx2

from tests import ROOT
from tests.support.databases.postgres import Cluster
from tests.support.replicas.nginx import free_port, nginx
from tests.support.replicas.servers import AGAIN_S, TOKEN, client_of, passed, replica_environ

LIMIT_S = 60
ENDS_S = 30.0  # after SIGTERM: then an orchestrator kills
FAIL_TIMEOUT_S = 2.0  # of docs/deploy/nginx.conf: for so long a server that refused gets no requests
CLI = ("-m", "routes.cli.main")
NAMES = ("node-1", "node-2", "node-3")


class Link:
    """A way to a port that can be stalled, as a network is. It refuses, while it is closed, as that port would."""

    def __init__(self, to: int) -> None:
        self.port, self._to = free_port(), to
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._tasks = set[asyncio.Task[None]]()

    def stall(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    def refuse(self) -> None:
        if self._server:
            self._server.close()

    def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.create_task(self._join(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, reader: StreamReader, writer: StreamWriter) -> None:
        ends = [writer]
        try:
            with suppress(OSError):
                await self._open.wait()
                back, onward = await asyncio.open_connection("127.0.0.1", self._to)
                ends.append(onward)
                ways = [asyncio.create_task(self._copy(*way)) for way in ((reader, onward), (back, writer))]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
        finally:
            for end in ends:
                end.close()

    async def _copy(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
            await self._open.wait()

    async def close(self) -> None:
        self.refuse()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Member:
    """One server, which is started again whenever it ends, from the tree that is its own at the time."""

    def __init__(self, node: str, folder: Path, environ: Mapping[str, str], flags: Sequence[str]) -> None:
        self.node, self.port, self.tree = node, free_port(), ROOT
        self.ended = asyncio.Event()
        self.link: Link | None = None  # between nginx and it
        self.starts = 0
        self._folder, self._environ, self._flags = folder, environ, flags
        self._process: asyncio.subprocess.Process | None = None
        self._is_up = asyncio.Event()

    @property
    def log(self) -> Path:
        return self._folder / f"{self.node}.log"

    @property
    def is_up(self) -> bool:
        return self._is_up.is_set()

    async def start(self) -> None:
        environ = {**self._environ, "PYTHONPATH": str(self.tree)}
        words = (*CLI, "serve", "--port", str(self.port), *self._flags)
        with self.log.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                *words,
                cwd=self.tree,
                env=environ,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1
        assert process.stdout
        async with asyncio.timeout(LIMIT_S):
            line = await process.stdout.readline()
        if not re.search(rb"http://localhost:\d+", line):
            await process.wait()
            await passed(AGAIN_S)
            return
        if self.link:
            await self.link.listen()
        self._is_up.set()

    async def keep_up(self) -> None:
        """As an orchestrator does."""
        while True:
            assert self._process
            await self._process.wait()
            self._is_up.clear()
            if self.link:
                self.link.refuse()
            await self.start()
            self.ended.set()

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if self._process and self._process.returncode is None:
                self._process.send_signal(number)

    async def kill(self) -> None:
        """Return when it is gone."""
        process = self._process
        self.send(signal.SIGKILL)
        assert process
        await process.wait()
        self._is_up.clear()

    async def replace(self, tree: Path) -> float:
        """End it with SIGTERM, start that tree in its place, and return after how many seconds it had ended."""
        await self.up()
        self.tree, process, since = tree, self._process, time.monotonic()
        assert process
        self._is_up.clear()
        self.send(signal.SIGTERM)
        if self.link:
            self.link.refuse()  # the server does at once, too
        try:
            await asyncio.wait_for(process.wait(), ENDS_S)
        except TimeoutError:
            self.send(signal.SIGKILL)
            await process.wait()
        took = time.monotonic() - since
        await self.up()
        return took

    async def up(self) -> None:
        """Wait until it listens."""
        async with asyncio.timeout(3 * LIMIT_S):
            await self._is_up.wait()

    async def close(self) -> None:
        self.send(signal.SIGCONT)
        self.send(signal.SIGKILL)
        if self._process:
            await self._process.wait()


class Stage:
    """Everything of one fire."""

    def __init__(self, postgres: Cluster, members: Sequence[Member], client: httpx2.AsyncClient) -> None:
        self.postgres, self.members, self.client = postgres, members, client
        self.database_link: Link
        self.database_url = ""

    @property
    def http_link(self) -> Link:
        [link] = [one.link for one in self.members if one.link]
        return link


def made_token(tree: Path, environ: Mapping[str, str]) -> str:
    """An admin's; made by the older version, lest the newer one changes the schema."""
    words = (*CLI, "token", "create", "--name", "fire", "--role", "admin")
    environ = {**environ, "PYTHONPATH": str(tree)}
    done = subprocess.run([sys.executable, *words], cwd=tree, env=environ, capture_output=True, text=True, check=False)
    found = TOKEN.search(done.stdout)
    assert done.returncode == 0 and found, done.stderr
    return found[0]


@asynccontextmanager
async def stage(
    folder: Path, postgres: Cluster, tree: Path, flags: Sequence[str], environ: Mapping[str, str]
) -> AsyncGenerator[Stage, None]:
    """Three servers of that tree on a database without a schema. One has a link to the database, one to nginx."""
    (folder / "work").mkdir(parents=True, exist_ok=True)
    postgres.sql("CREATE DATABASE fire")
    url = postgres.url("fire")
    async with AsyncExitStack() as stack:
        link = Link(postgres.port)
        stack.push_async_callback(link.close)
        await link.listen()
        environs = [replica_environ(folder, name, url) | dict(environ) for name in NAMES]
        environs[1]["DRAGOMAN_DATABASE_URL"] = url.replace(f":{postgres.port}/", f":{link.port}/")
        token = await asyncio.to_thread(made_token, tree, environs[0])
        members = [Member(name, folder, one, flags) for name, one in zip(NAMES, environs, strict=True)]
        last = members[-1]
        last.link = Link(last.port)
        stack.push_async_callback(last.link.close)
        for one in members:
            one.tree = tree
            stack.push_async_callback(one.close)
        await asyncio.gather(*(one.start() for one in members))
        assert all(one.is_up for one in members), members[0].log.read_text()
        stack.push_async_callback(_ended, [asyncio.create_task(one.keep_up()) for one in members])
        ports = [one.link.port if one.link else one.port for one in members]
        port = await stack.enter_async_context(nginx(folder / "nginx", ports))
        client = await stack.enter_async_context(client_of(f"http://127.0.0.1:{port}", token))
        made = Stage(postgres, members, client)
        made.database_link, made.database_url = link, url
        yield made


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def model_server(pause_s: float) -> AsyncGenerator[str, None]:
    """The base URL of the scripted model's process."""
    port = free_port()
    words = ("-m", "tests.support.fire.model", str(port), str(pause_s))
    process = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout
        await asyncio.wait_for(process.stdout.readline(), LIMIT_S)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        await process.wait()


async def until_healed(stage: Stage) -> None:
    """Wait until every server is ready, and nginx gives it requests again."""
    for one in stage.members:
        await one.up()
        async with client_of(f"http://127.0.0.1:{one.port}", "") as client:
            while not await _is_ready(client):
                await passed(AGAIN_S)
    await passed(FAIL_TIMEOUT_S)


async def _is_ready(client: httpx2.AsyncClient) -> bool:
    with suppress(httpx2.TransportError):
        return (await client.get("/readyz")).status_code == 200
    return False
