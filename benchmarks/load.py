"""Readers of a server's streams, and what serving them costs it: CPU per token, latency, requests, memory.

A token's text is the time it was sent, so the reader knows how long each one took.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import cast

import psutil
import uvloop

from benchmarks.processes import cpu_s

DEADLINE_S = 300
END = b"event: run.finished"
RUN = re.compile(rb"run_[0-9a-f]{20}")
NUMBER = re.compile(rb"(\d{6,}) ")
LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Asked:
    """What a server is sent for one answer."""

    path: str = "/chat"
    body: bytes = b'{"message": "go"}'


@dataclass(slots=True)
class Heard:
    """What the readers of one load got: tokens, and how long each took in milliseconds."""

    tokens: int = 0
    waits_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    streams: int
    tokens: int
    rate: float  # tokens a second and stream; 0 is as fast as possible
    turns: int = 1  # one after another on each stream


class Reader(asyncio.Protocol):
    """One answer, read to its end; `known` is told the run's id."""

    def __init__(self, port: int, heard: Heard, asked: Asked, known: asyncio.Future[str] | None) -> None:
        self.over = asyncio.get_running_loop().create_future()
        self._port = port
        self._heard = heard
        self._asked = asked
        self._known = known
        self._rest = b""
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        asked = self._asked
        head = f"POST {asked.path} HTTP/1.1\r\nhost: localhost:{self._port}\r\ncontent-type: application/json\r\n"
        head += f"connection: close\r\ncontent-length: {len(asked.body)}\r\n\r\n"
        cast("asyncio.Transport", transport).write(head.encode() + asked.body)

    def data_received(self, block: bytes) -> None:
        now = time.monotonic_ns() // 1000
        if self._known and not self._known.done() and (found := RUN.search(block)):
            self._known.set_result(found[0].decode())
        if self._ended:
            return
        text, _, self._rest = (self._rest + block).rpartition(b" ")
        text, ended, _ = text.partition(END)  # the terminal event repeats the whole text
        self._ended = bool(ended)
        sent = NUMBER.findall(text + b" ")
        self._heard.tokens += len(sent)
        self._heard.waits_ms += [(now - int(one)) / 1000 for one in sent]

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set_result(None)


async def read_stream(
    port: int, heard: Heard, known: asyncio.Future[str] | None = None, *, asked: Asked | None = None
) -> None:
    loop = asyncio.get_running_loop()
    _, reader = await loop.create_connection(lambda: Reader(port, heard, asked or Asked(), known), "127.0.0.1", port)
    await reader.over


async def all_streams(port: int, load: Load, asked: Asked) -> Heard:
    heard = Heard()

    async def turns() -> None:
        for _ in range(load.turns):
            await read_stream(port, heard, asked=asked)

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as readers:
        for _ in range(load.streams):
            readers.create_task(turns())
    return heard


@dataclass(frozen=True, slots=True)
class Measured:
    cpu_us: float  # per token, of the server process
    p50_ms: float
    p99_ms: float
    tokens_per_s: float
    delivered: float  # share of all tokens
    request_us: float  # CPU per answer
    grown_kb: float  # memory per stream, at its most


def measure(port: int, process: psutil.Process, load: Load, asked: Asked | None = None) -> Measured:
    asked = asked or Asked()
    uvloop.run(all_streams(port, Load("warm-up", 2, min(load.tokens, 20), load.rate), asked))
    before, started = cpu_s(process), time.perf_counter()
    with watched(process) as held:
        heard = uvloop.run(all_streams(port, load, asked))
    seconds, cpu = time.perf_counter() - started, cpu_s(process) - before
    waits = sorted(heard.waits_ms)
    return Measured(
        cpu / heard.tokens * 1e6,
        waits[len(waits) // 2],
        waits[len(waits) * 99 // 100],
        heard.tokens / seconds,
        heard.tokens / (load.streams * load.tokens * load.turns),
        cpu / (load.streams * load.turns) * 1e6,
        (max(held) - held[0]) / load.streams / 1024,
    )


@contextmanager
def watched(process: psutil.Process) -> Iterator[list[int]]:
    """How many bytes it holds, again and again."""
    held, over = [process.memory_info().rss], threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            held.append(process.memory_info().rss)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield held
    finally:
        over.set()
        watcher.join()


def median(rounds: list[Measured]) -> Measured:
    return Measured(*(statistics.median(getattr(one, name.name) for one in rounds) for name in fields(Measured)))
