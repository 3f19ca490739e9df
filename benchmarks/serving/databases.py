"""The event log in PostgreSQL beside SQLite's: CPU of the server an event, in the same rounds.

`python -m benchmarks.serving.databases URL` takes a database that may be filled; without one it makes a cluster that
does not wait for the disk.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from uuid import uuid4

from app.core.events import TextDelta
from app.log.event_writer import EventWriter, RunLog
from app.storage.database import open_store
from app.storage.runs import RunRow
from app.storage.store import Store
from tests.support.databases.postgres import cluster

RUNS, RATE, TIME_S, ROUNDS = 100, 3_000, 4.0, 3  # events a second of all runs
TICK_S = 0.002
GOAL = 1.5


async def cpu_us(store: Store | None) -> float:
    """CPU of this process an event, at a rate that streams have; without a store what the loop alone takes."""
    names = [f"run_{uuid4().hex}" for _ in range(RUNS)]
    if store:
        await store.write([RunRow(name, f"ses_{name}", "ann", "m", "running", 1.0) for name in names])
    started, at, count = time.process_time(), time.perf_counter(), 0
    async with EventWriter(store, spacing_s=store.spacing_s) if store else nullcontext() as writer:
        logs = [RunLog(name, writer, lambda: None) for name in names] if writer else []
        while (passed := time.perf_counter() - at) < TIME_S:
            for number in range(count, int(passed * RATE)):
                if logs:
                    logs[number % RUNS].add(TextDelta(f"{number} "))
            count = int(passed * RATE)
            await asyncio.sleep(TICK_S)
        if writer:
            await writer.flush()
    assert all(log.failure is None for log in logs)
    return (time.process_time() - started) / count * 1e6


async def measured(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stores = [await open_store(Path(folder) / "log.db"), await open_store(Path(folder), url)]
        try:
            rounds = [[await cpu_us(one) for one in (None, *stores)] for _ in range(ROUNDS)]
        finally:
            for store in stores:
                await store.close()
    loop, sqlite, postgres = map(median, zip(*rounds, strict=True))
    ratios = sorted((theirs - alone) / (ours - alone) for alone, ours, theirs in rounds)
    print(f"us an event at {RATE:,}/s of {RUNS} runs: SQLite {sqlite - loop:.1f}, PostgreSQL {postgres - loop:.1f}")
    print(f"ratio {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}; goal {GOAL})")


def main() -> None:
    if len(sys.argv) > 1:
        asyncio.run(measured(sys.argv[1]))
        return
    with cluster() as made:
        asyncio.run(measured(made.database()))


if __name__ == "__main__":
    main()
