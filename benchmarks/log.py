"""What the durable log costs: per event in the writer, per watcher in memory, per token in a whole server."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import tempfile
import time
import tracemalloc
from contextlib import ExitStack, aclosing
from pathlib import Path

from app.budget.budgets import Ledger
from app.core.events import RunFinished, TextDelta, ToolStarted
from app.log.event_writer import EventWriter, RunLog
from app.policy.approvals import Approvals
from app.runs.run_manager import RunManager
from app.storage.kill_switch import KillSwitch
from app.storage.runs import EventRow
from app.storage.sqlite.database import PRAGMAS
from app.storage.sqlite.store import SQLiteStore
from benchmarks.load import Heard, Load, measure, read_stream
from benchmarks.processes import child, dragoman

EVENTS = 20_000
BATCH = 50
WATCHERS = 1000
LAST = 500
LOADS = (Load("paced", 100, 90, 30), Load("paced", 300, 90, 30))


def bare_us(folder: Path) -> float:
    """The floor: executemany and commit, in batches, nothing else."""
    db = sqlite3.connect(folder / "bare.db")
    for pragma in PRAGMAS:
        db.execute(f"PRAGMA {pragma}")
    db.execute("CREATE TABLE events (run TEXT, seq INTEGER, type TEXT, data TEXT, PRIMARY KEY (run, seq))")
    rows = [("run", number, "tool.started", json.dumps({"n": number, "text": "x" * 60})) for number in range(EVENTS)]
    started = time.process_time()
    for at in range(0, EVENTS, BATCH):
        db.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows[at : at + BATCH])
        db.commit()
    spent = time.process_time() - started
    db.close()
    return spent / EVENTS * 1e6


async def journal_us(folder: Path, runs: int) -> float:
    """Our writer: events that do not join, from `runs` runs at once."""
    store = await SQLiteStore.open(folder / f"journal-{runs}.db")
    async with EventWriter(store) as journal:
        logs = [RunLog(f"run-{number}", journal, lambda: None) for number in range(runs)]
        started = time.process_time()
        for number in range(EVENTS):
            logs[number % runs].add(ToolStarted("c", "bash", {"n": number, "text": "x" * 40}, "native"))
            if number % BATCH == 0:
                await asyncio.sleep(0)
            await journal.room()
        await journal.flush()
        spent = time.process_time() - started
    await store.close()
    return spent / EVENTS * 1e6


async def replay_rate(folder: Path) -> float:
    """Events a second that one reader gets of an ended run."""
    store = await SQLiteStore.open(folder / "replay.db")
    await store.write([EventRow("run", seq, "text.delta", "{}") for seq in range(1, EVENTS)])
    await store.write([EventRow("run", EVENTS, RunFinished.type, "{}")])
    async with EventWriter(store) as journal:
        started, seen = time.perf_counter(), 0
        async with aclosing(
            RunManager(store, journal, KillSwitch(store), Approvals(store, 300), Ledger(store)).watch("run", 0)
        ) as pages:
            async for rows in pages:
                seen += len(rows)
        spent = time.perf_counter() - started
    await store.close()
    assert seen == EVENTS
    return EVENTS / spent


async def watcher_bytes(folder: Path) -> float:
    """Memory of one watcher that waits on the cursor of a live log."""
    store = await SQLiteStore.open(folder / "watch.db")
    async with EventWriter(store) as journal:
        log = RunLog("run", journal, lambda: None)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        waiting = [asyncio.create_task(log.after(0)) for _ in range(WATCHERS)]
        await asyncio.sleep(0)
        size = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        log.add(TextDelta("x"))
        await asyncio.gather(*waiting)
    await store.close()
    return size / WATCHERS


def whole_server(load: Load) -> None:
    """Latency and CPU per token with the log and without it."""
    with ExitStack() as stack:
        upstream, _ = stack.enter_context(child("-m", "benchmarks.upstream", str(load.tokens), str(load.rate)))
        url = f"http://127.0.0.1:{upstream}/v1"
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        servers = {
            "without": stack.enter_context(child("-m", "benchmarks.unlogged", url, folder)),
            "with": stack.enter_context(dragoman("--model-url", url, "--model", "bench")),
        }
        got = {name: measure(port, process, load) for name, (port, process) in servers.items()}
    print(f"\n{load.streams} streams at {load.rate}/s{'CPU us/token':>18}{'p50 ms':>9}{'p99 ms':>9}{'delivered':>11}")
    for name, one in got.items():
        print(f"{name + ' the log':24}{one.cpu_us:17.1f}{one.p50_ms:9.2f}{one.p99_ms:9.2f}{one.delivered:11.1%}")
    ratio, added = got["with"].cpu_us / got["without"].cpu_us, got["with"].p50_ms - got["without"].p50_ms
    print(f"CPU ratio {ratio:.2f} (target 1.3), p50 added {added:.2f} ms (target 1)")


async def stall(port: int, run: str, count: int) -> list[asyncio.StreamWriter]:
    """Watchers that ask for the run's events and never read one: their small buffers are full at once."""
    writers = []
    for _ in range(count):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.connect(("127.0.0.1", port))
        _, writer = await asyncio.open_connection(sock=sock, limit=1024)
        writer.write(f"GET /runs/{run}/events HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        writers.append(writer)
    return writers


async def healthy_waits(port: int, stalled: int) -> list[float]:
    """How long each token took, in milliseconds, sorted, with so many stalled watchers of the same run."""
    heard, known = Heard(), asyncio.get_running_loop().create_future()
    reading = asyncio.create_task(read_stream(port, heard, known))
    writers = await stall(port, await known, stalled)
    await reading
    for writer in writers:
        writer.close()
    return sorted(heard.waits_ms[-LAST:])  # not while they were connecting


def stalled_watchers() -> None:
    with ExitStack() as stack:
        upstream, _ = stack.enter_context(child("-m", "benchmarks.upstream", "1500", "100", "1000"))
        url = f"http://127.0.0.1:{upstream}/v1"
        port, process = stack.enter_context(dragoman("--model-url", url, "--model", "bench"))
        alone = asyncio.run(healthy_waits(port, 0))
        before = process.memory_info().rss
        beside = asyncio.run(healthy_waits(port, WATCHERS))
        grown = (process.memory_info().rss - before) / WATCHERS
    p99 = alone[len(alone) * 99 // 100], beside[len(beside) * 99 // 100]
    print(f"\n{WATCHERS} stalled watchers of one run: p99 of a healthy one {p99[1]:.1f} ms, alone {p99[0]:.1f} ms")
    print(f"memory of the whole server: {grown:,.0f} bytes per stalled watcher")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        floor = bare_us(folder)
        print(f"bare executemany, batches of {BATCH}: {floor:.1f} us/event")
        for runs in (1, 10, 100):
            cost = asyncio.run(journal_us(folder, runs))
            print(f"journal, {runs:3} runs: {cost:5.1f} us/event, {cost / floor:.1f} times the floor")
        print(f"replay: {asyncio.run(replay_rate(folder)):,.0f} events/s")
        print(f"a waiting watcher: {asyncio.run(watcher_bytes(folder)):,.0f} bytes")
    stalled_watchers()
    for load in LOADS:
        whole_server(load)


if __name__ == "__main__":
    main()
