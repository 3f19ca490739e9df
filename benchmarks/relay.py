"""What `POST /chat` costs, against a bare byte relay in the same run: CPU per token, latency, requests, memory.

A token's text is the time it was sent, so the reader knows how long each one took.
`python -m benchmarks.relay ROUNDS`: the median of so many rounds, 1 unless given.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from typing import cast

import psutil
import uvloop

from benchmarks.processes import child, cpu_s, dragoman

BODY = b'{"message": "go"}'
DEADLINE_S = 60
END = b"event: run.finished"
RUN = re.compile(rb"run_[0-9a-f]{20}")
NUMBER = re.compile(rb"(\d{6,}) ")


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


LOADS = (
    Load("one stream", 1, 120, 30),
    Load("paced", 300, 300, 30),
    Load("flat out", 4, 40_000, 0),
    Load("requests", 8, 1, 0, turns=40),
)


class Reader(asyncio.Protocol):
    """One turn, read to its end; `known` is told the run's id."""

    def __init__(self, port: int, heard: Heard, known: asyncio.Future[str] | None = None) -> None:
        self.over = asyncio.get_running_loop().create_future()
        self._port = port
        self._heard = heard
        self._known = known
        self._rest = b""
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        head = f"POST /chat HTTP/1.1\r\nhost: localhost:{self._port}\r\ncontent-type: application/json\r\n"
        cast("asyncio.Transport", transport).write(
            f"{head}connection: close\r\ncontent-length: {len(BODY)}\r\n\r\n".encode() + BODY
        )

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


async def read_stream(port: int, heard: Heard, known: asyncio.Future[str] | None = None) -> None:
    loop = asyncio.get_running_loop()
    _, reader = await loop.create_connection(lambda: Reader(port, heard, known), "127.0.0.1", port)
    await reader.over


async def turns(port: int, heard: Heard, count: int) -> None:
    for _ in range(count):
        await read_stream(port, heard)


async def all_streams(port: int, load: Load) -> Heard:
    heard = Heard()
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as readers:
        for _ in range(load.streams):
            readers.create_task(turns(port, heard, load.turns))
    return heard


@dataclass(frozen=True, slots=True)
class Measured:
    cpu_us: float  # per token, of the server process
    p50_ms: float
    p99_ms: float
    tokens_per_s: float
    delivered: float  # share of all tokens
    request_us: float  # CPU
    grown_kb: float  # memory, a stream


def measure(port: int, process: psutil.Process, load: Load) -> Measured:
    uvloop.run(all_streams(port, Load("warm-up", 2, min(load.tokens, 20), load.rate)))
    held = process.memory_info().rss
    before, started = cpu_s(process), time.perf_counter()
    heard = uvloop.run(all_streams(port, load))
    seconds, cpu = time.perf_counter() - started, cpu_s(process) - before
    waits = sorted(heard.waits_ms)
    return Measured(
        cpu / heard.tokens * 1e6,
        waits[len(waits) // 2],
        waits[len(waits) * 99 // 100],
        heard.tokens / seconds,
        heard.tokens / (load.streams * load.tokens * load.turns),
        cpu / (load.streams * load.turns) * 1e6,
        (process.memory_info().rss - held) / load.streams / 1024,
    )


def median(rounds: list[Measured]) -> Measured:
    return Measured(*(statistics.median(getattr(one, name.name) for one in rounds) for name in fields(Measured)))


@contextmanager
def servers(load: Load) -> Iterator[dict[str, tuple[int, psutil.Process]]]:
    """The floor first."""
    with ExitStack() as stack:
        upstream, _ = stack.enter_context(child("-m", "benchmarks.upstream", str(load.tokens), str(load.rate)))
        url = f"http://127.0.0.1:{upstream}/v1"
        yield {
            "bare relay": stack.enter_context(child("-m", "benchmarks.bare_relay", url)),
            "dragoman": stack.enter_context(dragoman("--model-url", url, "--model", "bench")),
            "stock client": stack.enter_context(
                dragoman("--model-url", url, "--model", "bench", "--transport", "httpx2")
            ),
        }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 1
    columns = f"{'CPU us/token':>14}{'ratio':>7}{'p50 ms':>9}{'ratio':>7}{'p99 ms':>9}{'tokens/s':>10}{'delivered':>11}"
    for load in LOADS:
        print(
            f"\n{load.name}: {load.streams} x {load.turns} answers of {load.tokens} tokens, {load.rate or 'all'}/s each"
        )
        print(f"{'':14}{columns}{'us/request':>12}{'ratio':>7}{'KB/stream':>11}{'ratio':>7}")
        with servers(load) as started:
            rounds = [{name: measure(*server, load) for name, server in started.items()} for _ in range(count)]
        floor = median([one["bare relay"] for one in rounds])
        for name in started:
            got = median([one[name] for one in rounds])
            print(
                f"{name:14}{got.cpu_us:14.1f}{got.cpu_us / floor.cpu_us:7.2f}{got.p50_ms:9.2f}"
                f"{got.p50_ms / floor.p50_ms:7.2f}{got.p99_ms:9.2f}{got.tokens_per_s:10,.0f}{got.delivered:11.1%}"
                f"{got.request_us:12,.0f}{got.request_us / floor.request_us:7.1f}"
                f"{got.grown_kb:11.0f}{got.grown_kb / max(floor.grown_kb, 0.1):7.1f}"
            )


if __name__ == "__main__":
    main()
