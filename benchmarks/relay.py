"""What `POST /chat` costs per token, against a bare relay with the same HTTP client, in the same run.

Two loads: paced streams (latency and CPU as people feel them) and streams as fast as they go (what is left).
A token's text is the time it was sent, so the reader knows how long each one took.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import psutil

from benchmarks.processes import child, cpu_s, dragoman

BODY = json.dumps({"message": "go"}).encode()
DEADLINE_S = 180
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


LOADS = (Load("paced", 60, 150, 30), Load("flat out", 4, 8000, 0))


async def read_stream(port: int, heard: Heard, known: asyncio.Future[str] | None = None) -> None:
    """One turn, read to its end; `known` is told the run's id."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /chat HTTP/1.1\r\nhost: localhost:{port}\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}connection: close\r\ncontent-length: {len(BODY)}\r\n\r\n".encode() + BODY)
    rest = ended = b""
    while block := await reader.read(65536):
        now = time.monotonic() * 1e6
        if known and not known.done() and (found := RUN.search(block)):
            known.set_result(found[0].decode())
        text, _, rest = (rest + block).rpartition(b" ")
        if ended:
            continue
        text, ended, _ = text.partition(END)  # the terminal event repeats the whole text
        sent = NUMBER.findall(text + b" ")
        heard.tokens += len(sent)
        heard.waits_ms += [(now - int(one)) / 1000 for one in sent]
    writer.close()


async def all_streams(port: int, load: Load) -> Heard:
    heard = Heard()
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as readers:
        for _ in range(load.streams):
            readers.create_task(read_stream(port, heard))
    return heard


@dataclass(frozen=True, slots=True)
class Measured:
    cpu_us: float  # per token, of the server process
    p50_ms: float
    p99_ms: float
    tokens_per_s: float
    delivered: float  # share of all tokens


def measure(port: int, process: psutil.Process, load: Load) -> Measured:
    asyncio.run(all_streams(port, Load("warm-up", 2, load.tokens, load.rate)))
    before, started = cpu_s(process), time.perf_counter()
    heard = asyncio.run(all_streams(port, load))
    seconds, cpu = time.perf_counter() - started, cpu_s(process) - before
    waits = sorted(heard.waits_ms)
    return Measured(
        cpu / heard.tokens * 1e6,
        waits[len(waits) // 2],
        waits[len(waits) * 99 // 100],
        heard.tokens / seconds,
        heard.tokens / (load.streams * load.tokens),
    )


def main() -> None:
    for load in LOADS:
        print(f"\n{load.name}: {load.streams} streams of {load.tokens} tokens, {load.rate or 'all'}/s each")
        print(f"{'':12}{'CPU us/token':>14}{'ratio':>8}{'p50 ms':>9}{'p99 ms':>9}{'tokens/s':>11}{'delivered':>11}")
        with ExitStack() as stack:
            upstream, _ = stack.enter_context(child("-m", "benchmarks.upstream", str(load.tokens), str(load.rate)))
            url = f"http://127.0.0.1:{upstream}/v1"
            servers = {
                "bare relay": stack.enter_context(child("-m", "benchmarks.bare_relay", url)),
                "dragoman": stack.enter_context(dragoman("--model-url", url, "--model", "bench")),
            }
            floor = 0.0
            for name, (port, process) in servers.items():
                got = measure(port, process, load)
                floor = floor or got.cpu_us
                print(
                    f"{name:12}{got.cpu_us:14.1f}{got.cpu_us / floor:8.2f}{got.p50_ms:9.2f}{got.p99_ms:9.2f}"
                    f"{got.tokens_per_s:11,.0f}{got.delivered:11.1%}"
                )


if __name__ == "__main__":
    main()
