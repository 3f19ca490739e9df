"""One load on one server: its CPU per token and per answer, latencies, memory, and who else used the machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields

import psutil
import uvloop

from benchmarks.load import Endpoint, Load, Received, read_all
from benchmarks.processes import cpu_s

WARM_UP = Load(streams=20, tokens=20, rate=30)  # what is made once must not count as memory of streams
IDLE_LOOK_S, IDLE_SHARE, IDLE_LIMIT_S = 0.3, 0.03, 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is measured, and the upstream that it asks."""

    port: int
    process: psutil.Process
    upstream: psutil.Process
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Measured:
    """CPU times are of the server's process, from the first request until it is idle again."""

    token_us: float  # CPU per token, requests included
    answer_us: float  # CPU per answer, tokens included
    p50_ms: float
    p99_ms: float
    first_ms: float  # from a request to its first token, median
    delivered: float  # of what was due while all streams were open, the share that came in that time
    tokens_per_s: float
    grown_kb: float  # memory per stream, at its most; of a server that had as many before it is less
    answered: float  # share of all answers that came to their end in time
    server_cores: float
    upstream_cores: float
    reader_cores: float
    other_cores: float  # of processes that do not belong to the measurement


def median(rounds: Sequence[Measured]) -> Measured:
    return Measured(*(statistics.median(getattr(one, name.name) for one in rounds) for name in fields(Measured)))


def warm_up(server: Server) -> None:
    uvloop.run(read_all(server.port, WARM_UP, server.endpoint, server.process))
    until_idle(server.process)


def until_idle(process: psutil.Process) -> None:
    """Runs without a reader, and what a server puts off until it has time, are part of what it costs."""
    given_up = time.monotonic() + IDLE_LIMIT_S
    while time.monotonic() < given_up:
        before = cpu_s(process)
        time.sleep(IDLE_LOOK_S)
        if cpu_s(process) - before < IDLE_LOOK_S * IDLE_SHARE:
            return


def busy_s() -> float:
    """CPU time of the whole machine."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0) - getattr(times, "guest", 0))


def measure(server: Server, load: Load) -> Measured:
    before, started = cpu_s(server.process), time.perf_counter()
    clocks = [busy_s(), cpu_s(server.process), cpu_s(server.upstream), time.process_time()]
    received = uvloop.run(read_all(server.port, load, server.endpoint, server.process))
    seconds = time.perf_counter() - started
    after = [busy_s(), cpu_s(server.process), cpu_s(server.upstream), time.process_time()]
    until_idle(server.process)
    cpu = cpu_s(server.process) - before
    everything, *ours = ((now - then) / seconds for now, then in zip(after, clocks, strict=True))
    return measured(received, load, cpu, seconds, [*ours, max(0.0, everything - sum(ours))])


def measured(received: Received, load: Load, cpu: float, seconds: float, cores: Sequence[float]) -> Measured:
    if not received.tokens:
        raise RuntimeError(f"no token came of {load}")
    waits = sorted(received.waits_ms)
    opens, closes = load.full_s
    due = (closes - opens) * load.rate * load.streams or received.tokens
    return Measured(
        cpu / received.tokens * 1e6,
        cpu / max(received.answers, 1) * 1e6,
        waits[len(waits) // 2],
        waits[len(waits) * 99 // 100],
        statistics.median(received.firsts_ms),
        min(1.0, (received.in_full if load.rate else received.tokens) / due),  # more if it catches up
        received.tokens / seconds,
        (max(received.rss) - received.rss[0]) / load.streams / 1024,
        received.answers / (load.streams * load.turns),
        *cores,
    )
