"""Three real `dragoman serve` on one database, behind a load balancer: for tests of what a fault takes away.

    async with three_replicas(tmp_path, database_url, model.base_url) as replicas:
        run = ...                                  # a message by `replicas.client`, which goes to any of them
        owner = await replicas.owner_of(run)
        owner.kill()                               # or `stop()` and `go_on()`, `terminate()`, `await restart()`
        await owner.client.get("/readyz")          # past the balancer

Each has a node name, a data directory and a log (`owner.log`, kept in `folder`) of its own; they share the workspace.
All processes end with the block, by their ids.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import re
import secrets
import signal
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import httpx2

from app.config.settings import Settings
from tests.support.replicas.nginx import nginx
from tests.support.server.dragoman_process import DragomanProcess, run_dragoman, started
from tests.support.server.serving import NO_TLS

LIMIT_S = 60
REPLICAS = 3
AGAIN_S = 0.1  # after which a client that was refused asks again
LOOK_S = 0.02  # between two looks at what comes without a sign
TOKEN = re.compile(r"^\S{20,}", re.MULTILINE)
OWNER = "SELECT r.node FROM runs JOIN replicas r ON r.id = runs.owner WHERE runs.id = $1 AND runs.ended IS NULL"
Balancer = Literal["tcp", "nginx"]
Rows = list[tuple[object, ...]]


async def passed(seconds: float) -> None:
    """Let time pass as a model or a client does; what a test waits for has a sign of its own."""
    due = asyncio.get_running_loop().create_future()
    timer = asyncio.get_running_loop().call_later(seconds, due.set_result, None)
    try:
        await due
    finally:
        timer.cancel()  # who waits may be cancelled


class Replica:
    """One server. `process` is that of its latest start; its address, and so `client`, stay."""

    process: DragomanProcess
    base_url: str
    client: httpx2.AsyncClient

    def __init__(self, node: str, folder: Path, environ: Mapping[str, str], flags: Sequence[str], token: str) -> None:
        self.node = node
        self.log = folder / f"{node}.log"
        self._environ, self._flags, self._token = environ, flags, token
        self._stack, self._clients = AsyncExitStack(), AsyncExitStack()
        self._begun = False

    @property
    def port(self) -> int:
        return int(self.base_url.rpartition(":")[2])

    async def start(self, port: int = 0) -> None:
        """Return when it listens."""
        log = self._stack.enter_context(self.log.open("ab"))
        words = ("serve", "--port", str(port), *self._flags)
        self.process = await self._stack.enter_async_context(started(*words, environ=self._environ, stderr=log))
        is_first, self._begun = not self._begun, True
        line = await asyncio.wait_for(self.process.stdout.readline(), LIMIT_S)
        found = re.search(rb"http://localhost:\d+", line)
        assert found, f"{self.node} did not start: {line!r} {self.log.read_text()}"
        self.base_url = found[0].decode()
        if is_first:
            self.client = await self._clients.enter_async_context(client_of(self.base_url, self._token))

    async def restart(self) -> None:
        """Start it again, on the same port and data, once its process has ended."""
        port = self.port
        await asyncio.wait_for(self.process.wait(), LIMIT_S)
        await self._stack.aclose()
        await self.start(port)

    async def restart_whenever_it_ends(self) -> None:
        """As an orchestrator does. A server that gets no time to act in is killed by its undertaker."""
        while True:
            await self.process.wait()
            await self.restart()

    async def close(self) -> None:
        """End it, and its clients."""
        if self._begun:
            self.go_on()  # a stopped one is killed, but its parent waits for that
        await asyncio.wait_for(self._stack.aclose(), LIMIT_S)
        await self._clients.aclose()

    def kill(self) -> None:
        self.process.kill()

    def terminate(self) -> None:
        """Drain: runs get their time of grace."""
        self.process.terminate()

    def stop(self) -> None:
        """As a machine that is frozen."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


class Replicas:
    """Three servers, and the address at which any of them answers."""

    def __init__(self, members: Sequence[Replica], url: str, client: httpx2.AsyncClient, database_url: str) -> None:
        self.members, self.url, self.client = members, url, client
        self.token = client.headers.get("authorization", "").removeprefix("Bearer ")
        self.database_url = database_url

    def __iter__(self) -> Iterator[Replica]:
        return iter(self.members)

    def others(self, than: Replica) -> list[Replica]:
        return [one for one in self.members if one is not than]

    async def owner_of(self, run: str) -> Replica | None:
        """The one that holds the run, as the database has it; None while it is free or once it has ended."""
        rows = await self.query(OWNER, run)
        return next((one for one in self.members if rows and one.node == rows[0][0]), None)

    async def owned(self, run: str, *, by_other_than: Replica | None = None) -> Replica:
        """Wait until a replica holds the run."""
        others = [one.node for one in self.members if one is not by_other_than]
        async with asyncio.timeout(LIMIT_S):
            [(node,)] = await self.until(lambda rows: rows and rows[0][0] in others, OWNER, run)
        return next(one for one in self.members if one.node == node)

    async def query(self, sql: str, *values: object) -> Rows:
        """Rows of the database, past all replicas."""
        return await self.until(lambda _: True, sql, *values)

    async def until(self, met: Callable[[Rows], object], sql: str, *values: object) -> Rows:
        """Query until the rows meet the condition, on one connection; the test is bounded."""
        async with self.connected() as connection:
            while not met(rows := [tuple(row) for row in await connection.fetch(sql, *values)]):
                await passed(LOOK_S)
        return rows

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[Any, None]:
        """A connection to the database, past all replicas."""
        connection = await importlib.import_module("asyncpg").connect(self.database_url)
        try:
            yield connection
        finally:
            await connection.close()


def client_of(url: str, token: str) -> httpx2.AsyncClient:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    once = httpx2.Limits(max_keepalive_connections=0)  # behind a balancer, a kept connection ends with its replica
    return httpx2.AsyncClient(
        base_url=url, timeout=LIMIT_S, trust_env=False, verify=NO_TLS, headers=headers, limits=once
    )


@asynccontextmanager
async def three_replicas(
    folder: Path,
    database_url: str,
    model_url: str | None,
    *flags: str,
    balancer: Balancer = "tcp",
    environ: Mapping[str, str] | None = None,
    count: int = REPLICAS,
    token: str | None = None,
    port: int = 0,
    apart: bool = False,
    each: Sequence[Mapping[str, str]] = (),
) -> AsyncGenerator[Replicas, None]:
    """Servers on an empty or used database; `flags` and `environ` are for each of them.

    With `apart` each has a workspace of its own, which is `work-` and its node. `each` is more of the environment,
    for one of them each.

    Without `model_url` the model is the settings'. `token` is an admin's of that database; without it one is made.
    """
    (folder / "work").mkdir(parents=True, exist_ok=True)
    model = ("--model-url", model_url, "--model", "m", "--tool-calls", "fenced") if model_url else ()
    words = (*model, *flags)
    environs = [
        replica_environ(folder, f"node-{n}", database_url, apart=apart) | dict(environ or {})
        for n in range(1, count + 1)
    ]
    for one, more in zip(environs, each, strict=False):
        one |= more
    if token is None:
        token = await asyncio.to_thread(made_token, environs[0])
    async with AsyncExitStack() as stack:
        members = [Replica(Path(one["DRAGOMAN_DATA_DIR"]).name, folder, one, words, token) for one in environs]
        for replica in members:
            stack.push_async_callback(replica.close)
        await asyncio.gather(*(replica.start() for replica in members))
        ports = [one.port for one in members]
        balancing = nginx(folder / "nginx", ports, port) if balancer == "nginx" else round_robin(ports)
        url = f"http://localhost:{await stack.enter_async_context(balancing)}"
        yield Replicas(members, url, await stack.enter_async_context(client_of(url, token)), database_url)


def replica_environ(folder: Path, node: str, database_url: str, *, apart: bool = False) -> dict[str, str]:
    """The environment of one replica, with the folders that it has in `folder`."""
    settings = {
        "data_dir": str(folder / node),
        "workspace": str(folder / (f"work-{node}" if apart else "work")),
        "database_url": database_url,
        "node": node,
        "workspace_shared": "false" if apart else "true",
        "secret_key": "a key of tests, the same for all replicas",
    }
    known = {f"DRAGOMAN_{name.upper()}": value for name, value in settings.items() if name in Settings.model_fields}
    return {"PATH": os.environ["PATH"], "HOME": str(folder), **known}


def made_token(environ: Mapping[str, str]) -> str:
    """A new token of an admin, for proxied requests too."""
    name = f"tests-{secrets.token_hex(4)}"  # the database may be one that was used
    made = run_dragoman("token", "create", "--name", name, "--role", "admin", environ=environ)
    found = TOKEN.search(made.stdout)
    assert made.returncode == 0 and found, made.stderr
    return found[0]


@asynccontextmanager
async def round_robin(ports: Sequence[int]) -> AsyncGenerator[int, None]:
    """A port whose connections go to these ports in turn; one that refuses is left out. It knows nothing of HTTP."""
    turns, tasks = itertools.count(), set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = next(turns)
        for place in range(len(ports)):
            with suppress(OSError):
                theirs = await asyncio.open_connection("127.0.0.1", ports[(first + place) % len(ports)])
                await _joined((reader, writer), theirs)
                return
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


End = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _joined(ours: End, theirs: End) -> None:
    """Copy both ways until one side has ended; then neither goes on."""
    ways = [asyncio.create_task(_copy(ours[0], theirs[1])), asyncio.create_task(_copy(theirs[0], ours[1]))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        for _, writer in (ours, theirs):
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
