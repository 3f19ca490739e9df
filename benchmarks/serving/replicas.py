"""Servers that share a PostgreSQL: a remote watcher's latency, CPU and write-ahead log a token, silence after a kill.

With `workers`: what a token costs behind one port by one worker and by two, and how even their load is.

`python -m benchmarks.serving.replicas` makes a cluster of its own, which waits for the disk. Rates are low and figures
are CPU times and differences of the same round, so that a machine which does other work gives the same ones.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import uvloop

from app.replicas.postgres.messages import channel_of
from benchmarks.load import IN_FRAMES, Load, read_all
from benchmarks.measure import until_idle
from benchmarks.processes import child, cpu_s
from benchmarks.subjects import CHAT
from benchmarks.upstream import now_us, order
from tests.support.databases.postgres import Cluster, cluster

REAL = ("fsync=on", "full_page_writes=on", "autovacuum=on", "shared_buffers=128MB")
LEASE_S = 3.0
LOAD = Load(streams=40, tokens=150, rate=30)
WATCHED, WATCHED_TOKENS, WATCHES = 20, 90, 3  # streams, their tokens, times in a round
SILENT_TOKENS, AFTER_S = 900, 0.5  # events that were on their way when the server was killed come within AFTER_S
ROUNDS, KILLS = 3, 2
WORKERS, CONNECTIONS = 2, 200
STEADY, FAST = Load(streams=20, tokens=120, rate=15), Load(streams=40, tokens=400, rate=0)  # of each worker
PROBES = 150
LIMIT_S = 90
RUN_ID = re.compile(rb"x-run-id: (\S+)", re.IGNORECASE)
IDS = "SELECT id, node FROM replicas WHERE state <> 'gone'"
COUNTS = """
    SELECT (SELECT count(*) FROM events), pg_current_wal_lsn() - '0/0'::pg_lsn,
        (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),
        (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()) - 1
"""


@dataclass(frozen=True, slots=True)
class Replica:
    node: str
    port: int
    process: psutil.Process


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU in microseconds a token, of each loaded server and of PostgreSQL; bytes of its log, and commits."""

    server_us: float
    postgres_us: float
    wal: float
    commits: float
    connections: float  # of a server


def capacity(cost: Cost, *, cores: int, disk_mb_s: float, commits_s: float) -> dict[str, float]:
    """Tokens a second that each part of PostgreSQL carries, with `cores` of it; the least is what all carry."""
    return {
        "CPU of PostgreSQL": cores / cost.postgres_us * 1e6,
        "its log": disk_mb_s * 1e6 / cost.wal,
        "its commits": commits_s / cost.commits,
    }


@contextmanager
def replicas(nodes: Sequence[str], upstream: int, url: str, folder: Path) -> Iterator[list[Replica]]:
    with ExitStack() as stack:
        started = []
        for node in nodes:
            flags = ("--data-dir", f"{folder}/{node}", "--workspace", f"{folder}/work", "--port", "0", "--node", node)
            shared = ("--database-url", url, "--workspace-shared", "--secret-key", "benchmark " * 4)
            model = ("--model-url", f"http://127.0.0.1:{upstream}/v1", "--model", "bench", "--lease-s", str(LEASE_S))
            words = ("-m", "routes", "serve", *flags, *shared, *model, "--log-level", "error")
            port, process = stack.enter_context(child(*words, port_pattern=r"http://localhost:(\d+)"))
            started.append(Replica(node, port, process))
        yield started


class Stream:
    """One stream of a run, and when each of its tokens came."""

    def __init__(self) -> None:
        self.run = ""
        self.came: dict[int, int] = {}
        self.begun = asyncio.Event()
        self.news = asyncio.Event()

    async def read(self, port: int, request: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        rest = b""
        while block := await reader.read(65_536):
            now = now_us()
            rest += block
            if not self.run and (found := RUN_ID.search(rest)):
                self.run = found[1].decode()
                self.begun.set()
            for text in IN_FRAMES.findall(rest):
                self.came.setdefault(int(text), now)
            self.news.set()
            rest = rest[-200:] if self.run else rest
        writer.close()

    async def until(self, tokens: int) -> None:
        while len(self.came) < tokens:
            self.news.clear()
            await self.news.wait()


def events_of(run: str, port: int) -> bytes:
    return f"GET /runs/{run}/events HTTP/1.1\r\nhost: localhost:{port}\r\nconnection: close\r\n\r\n".encode()


async def watched(owner: Replica, other: Replica, load: tuple[int, int]) -> list[float]:
    """Milliseconds by which each token came later at a watcher of the other server than at one of the owner."""
    tokens, rate = load

    async def one() -> list[float]:
        own, here, there = Stream(), Stream(), Stream()
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
            group.create_task(own.read(owner.port, CHAT.request(owner.port, order(tokens, rate))))
            await own.begun.wait()
            group.create_task(here.read(owner.port, events_of(own.run, owner.port)))
            group.create_task(there.read(other.port, events_of(own.run, other.port)))
        return [(there.came[at] - here.came[at]) / 1000 for at in here.came.keys() & there.came.keys()]

    return [wait for waits in await asyncio.gather(*(one() for _ in range(WATCHED))) for wait in waits]


async def notified(url: str) -> list[float]:
    """Milliseconds that a NOTIFY takes from one connection to another, while a load runs."""
    connect = importlib.import_module("asyncpg").connect
    one, other = await connect(url), await connect(url)
    came, waits = asyncio.Event(), list[float]()
    await other.add_listener("bare", lambda *_: came.set())
    await one.execute("SET synchronous_commit = off")
    for _ in range(PROBES):
        came.clear()
        sent = time.perf_counter()
        await one.execute("SELECT pg_notify('bare', $1)", "x" * 200)
        await came.wait()
        waits.append((time.perf_counter() - sent) * 1000)
        await asyncio.sleep(0.01)
    await one.close()
    await other.close()
    return waits


async def silence(owner: Replica, other: Replica) -> float:
    """Seconds from a kill of the owner until another one continues its run."""
    own, there = Stream(), Stream()

    async def until_cut() -> None:
        try:
            await own.read(owner.port, CHAT.request(owner.port, order(SILENT_TOKENS, 30)))
        except ConnectionError:
            return

    begun = asyncio.create_task(until_cut())
    await own.begun.wait()
    watching = asyncio.create_task(there.read(other.port, events_of(own.run, other.port)))
    async with asyncio.timeout(LIMIT_S):
        await there.until(30)
        owner.process.kill()
        killed = now_us()
        await asyncio.sleep(AFTER_S)
        await there.until(len(there.came) + 1)
    watching.cancel()
    await asyncio.wait([begun, watching])
    return (min(one for one in there.came.values() if one >= killed + AFTER_S * 1e6) - killed) / 1e6


class Database:
    """Figures of PostgreSQL itself."""

    def __init__(self, made: Cluster, connection: Any) -> None:
        assert made._process
        self._parent = psutil.Process(made._process.pid)
        self.connection = connection

    def cpu(self) -> dict[int, float]:
        found = dict[int, float]()
        for process in (self._parent, *self._parent.children()):
            try:
                found[process.pid] = cpu_s(process)
            except OSError:
                continue
        return found

    async def counts(self) -> list[float]:
        return [float(value) for value in await self.connection.fetchrow(COUNTS)]


async def cost(loaded: Sequence[Replica], database: Database, servers: int) -> Cost:
    """Load some of the servers at once, each with as much."""
    before, theirs, then = [cpu_s(one.process) for one in loaded], database.cpu(), await database.counts()
    received = await asyncio.gather(*(read_all(one.port, LOAD, CHAT, one.process) for one in loaded))
    most = (await database.counts())[3]
    for one in loaded:
        await asyncio.to_thread(until_idle, one.process)
    tokens = sum(one.tokens for one in received)
    spent = sum(cpu_s(one.process) for one in loaded) - sum(before)
    postgres = sum(cpu - theirs.get(pid, 0.0) for pid, cpu in database.cpu().items())
    events, wal, commits, _ = (now - at for now, at in zip(await database.counts(), then, strict=True))
    assert tokens, "no token came"
    return Cost(spent / tokens * 1e6, postgres / tokens * 1e6, wal / events, commits / tokens, most / servers)


async def measured(made: Cluster, url: str, upstream: int, folder: Path) -> None:
    connection = await importlib.import_module("asyncpg").connect(url)
    database = Database(made, connection)
    with replicas(["one", "two", "three"], upstream, url, folder) as three:
        await cost(three, database, 3)  # warm
        alone, together, waits, waits_alone = list[Cost](), list[Cost](), list[list[float]](), list[list[float]]()
        ids = {row["node"]: row["id"] for row in await connection.fetch(IDS)}
        notices, bare = list[float](), list[list[float]]()
        await connection.add_listener(channel_of(ids["two"]), lambda *_: notices.append(time.monotonic()))
        for _ in range(ROUNDS):
            alone.append(await cost(three[:1], database, 3))
            together.append(await cost(three, database, 3))
            for _ in range(WATCHES):
                probe, found = (
                    asyncio.create_task(notified(url)),
                    await watched(three[0], three[1], (WATCHED_TOKENS, 30)),
                )
                waits.append(found)
                bare.append(await probe)
                waits_alone.append(await watched(three[0], three[0], (WATCHED_TOKENS, 30)))
        print_costs(alone, together)
        print_waits("a watcher at another server, added ms", waits)
        print_waits("of that, a NOTIFY between two connections", bare)
        print_waits("a second watcher at the owner, for comparison", waits_alone)
        share = len(notices) / sum(map(len, waits))
        print(f"notifications to the watching server: {share:.2f} for a token of a watched run")
        for owner, other in ((three[0], three[1]), (three[1], three[2]))[:KILLS]:
            print(
                f"silence after kill -9: {await silence(owner, other):.2f} s, with a lease of {LEASE_S:g} s (goal: +1)"
            )
    await connection.close()


def print_costs(alone: Sequence[Cost], together: Sequence[Cost]) -> None:
    one, three = (min(rounds, key=lambda cost: cost.server_us) for rounds in (alone, together))
    for name, least in (("one of three loaded", one), ("all three", three)):
        print(
            f"{name}: a token takes {least.server_us:.0f} us of its server, {least.postgres_us:.0f} us of PostgreSQL, "
            f"an event {least.wal:.0f} bytes of log, a token {least.commits:.2f} commits; "
            f"{least.connections:.0f} connections a server"
        )
    wal = min(cost.wal for cost in (*alone, *together))
    print(f"an event takes {wal:.0f} bytes of log at least: more after each checkpoint")
    ratios = [3 * a.server_us / b.server_us for a, b in zip(alone, together, strict=True)]
    print(f"three carry {statistics.median(ratios):.2f} times one ({min(ratios):.2f} to {max(ratios):.2f}; goal 2.5)")
    carried = capacity(three, cores=8, disk_mb_s=200, commits_s=20_000)
    print("PostgreSQL with 8 cores:", ", ".join(f"{name} {tokens:,.0f} tokens/s" for name, tokens in carried.items()))


def print_waits(name: str, rounds: Sequence[Sequence[float]]) -> None:
    """The least of all rounds: other work on the machine only adds to it."""
    ordered = [sorted(waits) for waits in rounds]
    p50, p99 = (min(waits[len(waits) * share // 100] for waits in ordered) for share in (50, 99))
    middle = statistics.median(waits[len(waits) * 99 // 100] for waits in ordered)
    print(f"{name}: p50 {p50:.2f}, p99 {p99:.2f} (median of p99 {middle:.2f}; goal 1 and 5)")


@dataclass(frozen=True, slots=True)
class Shared:
    """A load behind one port: CPU in microseconds a token of all its processes, and the share of each worker."""

    token_us: float
    tokens_s: float
    shares: list[float]


@contextmanager
def workers(count: int, upstream: int, url: str, folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    """The port and the parent of so many workers; one is a server without a parent."""
    flags = ("--data-dir", f"{folder}/{count}", "--workspace", f"{folder}/work", "--port", "0", "--database-url", url)
    model = ("--model-url", f"http://127.0.0.1:{upstream}/v1", "--model", "bench", "--log-level", "error")
    words = ("-m", "routes", "serve", *flags, *model, "--workers", str(count))
    with child(*words, port_pattern=r"on port (\d+)" if count > 1 else r"http://localhost:(\d+)") as started:
        yield started


def serving(parent: psutil.Process, count: int) -> list[psutil.Process]:
    return [one for one in parent.children() if "--as-worker" in one.cmdline()] if count > 1 else [parent]


def tree_cpu(parent: psutil.Process) -> float:
    return sum(map(cpu_s, (parent, *parent.children(recursive=True))))


async def shared(port: int, parent: psutil.Process, count: int, load: Load) -> Shared:
    each = serving(parent, count)
    before, own, started = tree_cpu(parent), [cpu_s(one) for one in each], time.perf_counter()
    received = await read_all(port, load, CHAT, parent)
    took_s = time.perf_counter() - started
    for one in each:
        await asyncio.to_thread(until_idle, one)
    spent = [cpu_s(one) - then for one, then in zip(each, own, strict=True)]
    token_us = (tree_cpu(parent) - before) / received.tokens * 1e6
    return Shared(token_us, received.tokens / took_s, [one / sum(spent) * count for one in spent])


async def connected(port: int, parent: psutil.Process, count: int) -> list[float]:
    """Hold many connections at once; how many each worker has of them, 1 being as many as each should have."""
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS)]
    await asyncio.sleep(AFTER_S)
    own = [
        sum(one.laddr.port == port and one.status == "ESTABLISHED" for one in worker.net_connections("tcp"))
        for worker in serving(parent, count)
    ]
    for _, writer in held:
        writer.close()
    return [one / CONNECTIONS * count for one in own]


async def measured_workers(made: Cluster, upstream: int, folder: Path) -> None:
    with ExitStack() as stack:
        started = {n: stack.enter_context(workers(n, upstream, made.database(), folder)) for n in (1, WORKERS)}
        found: dict[tuple[int, str], list[Shared]] = {}
        for _ in range(ROUNDS + 1):
            for name, load in (("steady", STEADY), ("fast", FAST)):
                for n, (port, parent) in started.items():  # each worker has as much
                    found.setdefault((n, name), []).append(
                        await shared(port, parent, n, replace(load, streams=load.streams * n))
                    )
        for (n, name), rounds in found.items():
            best = min(rounds[1:], key=lambda one: one.token_us)  # the first was to warm up
            shares = ", ".join(f"{one:.2f}" for one in best.shares)
            rate = statistics.median(one.tokens_s for one in rounds[1:])
            print(f"{name}, {n} workers: {best.token_us:.0f} us a token, {rate:,.0f} tokens/s, CPU of each {shares}")
        for name in ("steady", "fast"):
            pairs = zip(found[WORKERS, name][1:], found[1, name][1:], strict=True)
            ratios = sorted(several.token_us / one.token_us for several, one in pairs)
            print(f"{name}: a token by {WORKERS} workers costs {statistics.median(ratios):.2f} times one's (goal 1.15)")
        port, parent = started[WORKERS]
        spread = [await connected(port, parent, WORKERS) for _ in range(ROUNDS)]
        print(
            f"of {CONNECTIONS} connections each worker has {min(map(min, spread)):.2f} to {max(map(max, spread)):.2f}"
        )


def main() -> None:
    with cluster(*REAL) as made, tempfile.TemporaryDirectory() as folder, child("-m", "benchmarks.upstream") as started:
        (Path(folder) / "work").mkdir()
        if "workers" in sys.argv:
            uvloop.run(measured_workers(made, started[0], Path(folder)))
        else:
            uvloop.run(measured(made, made.database(), started[0], Path(folder)))


if __name__ == "__main__":
    main()
