"""Bytes to log: what a token costs from the callback of the model server's socket to the run's log, in CPU time.

Whole runs without HTTP in front: agent, route, provider, transport, parser, reply, writer. Only the sockets and the
store are stand-ins. The runs take turns, so that none of them finds its own state in the processor's cache.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from functools import partial

import uvloop

from app.config.settings import Settings, load_settings
from app.core.provider import Provider
from app.models.http.client import LIMITS, ModelClient
from app.models.http.transport.connection import Connection
from app.models.http.transport.dial import Origin
from app.models.http.transport.lean import LeanTransport
from app.models.wire.openai.provider import OpenAIChat
from app.runs.run_options import RunOptions
from app.storage.principals import LOCAL_USER
from app.transcript.run_request import RunRequest
from benchmarks.floors.unlogged import ForgetfulStore
from benchmarks.upstream import CHUNK, END, HEAD, chunked
from routes.services import Services, open_services

RUNS = 300
ROUNDS = 7
TOKENS = 20  # of each run in each round
PER_TURN = 5  # connections that are read in one turn of the loop


class Socket(asyncio.Transport):
    """The transport of a connection to nothing: it answers a request with a head, and waits to be fed."""

    def __init__(self, connection: Connection, fed: list[Connection]) -> None:
        super().__init__()
        self._connection = connection
        self._fed = fed

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._fed.append(self._connection)
        self._connection.data_received(HEAD)

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        """There is nothing to close."""


class FedTransport(LeanTransport):
    """Connections to nothing; `fed` are those that have sent a request."""

    def __init__(self) -> None:
        super().__init__(LIMITS)
        self.fed: list[Connection] = []

    async def _dial(self, origin: Origin, limit_s: float | None) -> Connection:
        connection = Connection(self._ended)
        connection.connection_made(Socket(connection, self.fed))
        return connection

    def _reuse(self, origin: Origin) -> None:
        return None


async def choose(transport: FedTransport, settings: Settings) -> tuple[Provider, str]:
    client = ModelClient(transport)
    return OpenAIChat(client, "http://127.0.0.1:9/v1", "bench"), "fed by the benchmark"


async def feed(connections: list[Connection], data: bytes, times: int) -> float:
    """CPU seconds of the process for reading `data` so many times on each connection."""
    started = time.process_time()
    for _ in range(times):
        for number, connection in enumerate(connections):
            connection.data_received(data)
            if not number % PER_TURN:
                await asyncio.sleep(0)
    return time.process_time() - started


async def measure(services: Services, transport: FedTransport) -> None:
    for _ in range(RUNS):
        agent = await services.factory.agent(LOCAL_USER, RunOptions())
        await services.runs.start(agent, LOCAL_USER, RunRequest("go"))
    while len(transport.fed) < RUNS:  # noqa: ASYNC110 (what is waited for has no event)
        await asyncio.sleep(0.01)
    await feed(transport.fed, chunked((CHUNK % 123456).encode()), 2)  # the form of the chunks is learned
    for per_read in (1, 8):
        data = chunked((CHUNK % 1234567).encode()) * per_read
        rounds = sorted([await feed(transport.fed, data, TOKENS) for _ in range(ROUNDS)])
        print(f"{per_read} tokens a read {rounds[ROUNDS // 2] / RUNS / TOKENS / per_read * 1e6:10.2f} us/token")
    await feed(transport.fed, chunked(END) + b"0\r\n\r\n", 1)


async def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        flags = {"data_dir": f"{folder}/data", "workspace": f"{folder}/work"}
        settings, transport = load_settings(flags, {"HOME": folder}).settings, FedTransport()
        async with open_services(settings, partial(choose, transport), open_store=ForgetfulStore.open) as services:
            await measure(services, transport)


def main() -> None:
    uvloop.run(run())


if __name__ == "__main__":
    main()
