"""What the durable log costs: per event in the writer, per watcher in memory, per token in a whole server.

`python -m benchmarks.log ROUNDS`: medians of so many, 3 unless given, and their spread.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sqlite3
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path

from app.budget.budgets import Ledger
from app.core.events import AgentEvent, RunFinished, TextDelta, ToolStarted
from app.log.event_writer import EventWriter, RunLog, Watcher
from app.policy.approvals import Approvals
from app.runs.run_manager import RunManager
from app.storage.kill_switch import KillSwitch
from app.storage.runs import EventRow
from app.storage.sqlite.database import PRAGMAS
from app.storage.sqlite.store import SQLiteStore
from benchmarks.load import Load, Reader, Received
from benchmarks.measure import Measured, measure, median
from benchmarks.subjects import CHAT, OURS, UNLOGGED, Subject, ours, servers, unlogged
from benchmarks.upstream import order

EVENTS = 20_000
BATCH = 50
WATCHERS = 1000
LAST = 500
LOADS = (Load(streams=100, tokens=150, rate=30), Load(streams=300, tokens=150, rate=30))
ROUNDS = 3
ADDED_MS, APPEND_US = (1, 0.5), (12, 6)  # goals: firm, then the aim
KINDS: dict[str, Callable[[int], AgentEvent]] = {
    "calls": lambda number: ToolStarted("c", "bash", {"n": number, "text": "x" * 40}, "native"),
    "text": lambda number: TextDelta(f"{number} "),  # of many runs: neighbours of one would join
}
RUN = re.compile(rb"run_[0-9a-f]{20}")


def bare_us(path: Path) -> float:
    """The floor: executemany and commit, in batches, nothing else."""
    db = sqlite3.connect(path)
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


async def journal_us(folder: Path, runs: int, event: Callable[[int], AgentEvent]) -> tuple[float, float]:
    """Our writer, with events from `runs` runs at once: to append one, and until all are stored as ended runs are."""
    store = await SQLiteStore.open(folder / f"journal-{runs}.db")
    started = time.process_time()
    async with EventWriter(store) as journal:
        logs = [RunLog(f"run-{number}", journal, lambda: None) for number in range(runs)]
        for number in range(EVENTS):
            logs[number % runs].add(event(number))
            if number % BATCH == 0:
                await asyncio.sleep(0)
            await journal.room()
        await journal.flush()
        appended = time.process_time() - started
        for log in logs:
            log.add(RunFinished("answered", "", 1, 0, {}))
    await store.close()
    return appended / EVENTS * 1e6, (time.process_time() - started) / EVENTS * 1e6


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
        waiting = [asyncio.create_task(log.after(Watcher(0))) for _ in range(WATCHERS)]
        await asyncio.sleep(0)
        size = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        log.add(TextDelta("x"))
        await asyncio.gather(*waiting)
    await store.close()
    return size / WATCHERS


def whole_server(load: Load, rounds: int) -> None:
    """Latency and CPU per token with the log and without it."""
    got = [measure_each([unlogged(), ours()], load) for _ in range(rounds)]
    print(f"\n{load.streams} streams at {load.rate}/s{'CPU us/token':>18}{'p50 ms':>9}{'p99 ms':>9}{'delivered':>11}")
    for name in got[0]:
        one = median([measured[name] for measured in got])
        print(f"{name:24}{one.token_us:17.1f}{one.p50_ms:9.2f}{one.p99_ms:9.2f}{one.delivered:11.1%}")
    added = [one[OURS].p50_ms - one[UNLOGGED].p50_ms for one in got]
    ratios = [one[OURS].token_us / one[UNLOGGED].token_us for one in got]
    goal = f" (goal {ADDED_MS[0]}, aim {ADDED_MS[1]})" if load is LOADS[0] else ""
    print(f"CPU ratio {spread(ratios)}, p50 added {spread(added)} ms{goal}")


def measure_each(subjects: Sequence[Subject], load: Load) -> dict[str, Measured]:
    with servers(subjects) as started:
        return {name: measure(server, load) for name, server in started.items()}


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


class Watched(Reader):
    """A reader that learns the run's id."""

    def __init__(self, request: bytes, received: Received) -> None:
        super().__init__(request, received)
        self.run = asyncio.get_running_loop().create_future()

    def data_received(self, block: bytes) -> None:
        super().data_received(block)
        if not self.run.done() and (found := RUN.search(block)):
            self.run.set_result(found[0].decode())


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
    received, request = Received(), CHAT.request(port, order(tokens=1500, rate=100, burst=1000))
    _, reader = await asyncio.get_running_loop().create_connection(
        lambda: Watched(request, received), "127.0.0.1", port
    )
    writers = await stall(port, await reader.run, stalled)
    await reader.over
    for writer in writers:
        writer.close()
    return sorted(received.waits_ms[-LAST:])  # not while they were connecting


def stalled_watchers() -> None:
    with servers([ours()]) as started:
        port, process = started[OURS].port, started[OURS].process
        alone = asyncio.run(healthy_waits(port, 0))
        before = process.memory_info().rss
        beside = asyncio.run(healthy_waits(port, WATCHERS))
        grown = (process.memory_info().rss - before) / WATCHERS
    p99 = alone[len(alone) * 99 // 100], beside[len(beside) * 99 // 100]
    print(f"\n{WATCHERS} stalled watchers of one run: p99 of a healthy one {p99[1]:.1f} ms, alone {p99[0]:.1f} ms")
    print(f"memory of the whole server: {grown:,.0f} bytes per stalled watcher")


def writer(folder: Path, rounds: int) -> None:
    """CPU of an event in the writer, beside bare executemany in the same round."""
    floor = statistics.median(bare_us(folder / f"bare-{number}.db") for number in range(rounds))
    print(f"bare executemany, batches of {BATCH}: {floor:.1f} us/event")
    for runs, name in ((1, "calls"), (10, "calls"), (300, "calls"), (300, "text")):
        got = []
        for number in range(rounds):
            place = folder / f"{name}-{runs}-{number}"
            place.mkdir()
            got.append(asyncio.run(journal_us(place, runs, KINDS[name])))
        appended, stored = zip(*got, strict=True)
        goal = f" (goal {APPEND_US[0]}, aim {APPEND_US[1]})" if name == "text" else ""
        print(f"{name}, {runs:3} runs: append {spread(appended)}{goal}, stored as ended runs {spread(stored)} us/event")


def main(arguments: Sequence[str] = ()) -> None:
    rounds = int(arguments[0]) if arguments else ROUNDS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer(folder, rounds)
        print(f"replay: {asyncio.run(replay_rate(folder)):,.0f} events/s")
        print(f"a waiting watcher: {asyncio.run(watcher_bytes(folder)):,.0f} bytes")
    stalled_watchers()
    for load in LOADS:
        whole_server(load, rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
