"""What a live stream holds: growth of the resident set beside a relay's, bytes by their owner, objects by their type.

`python -m benchmarks.serving.stream_memory ROWS`: the largest of each table, 25 unless given. For the tables the server
is in this process, its model and its readers are in others. Bytes are those of tracemalloc between two looks, before
the streams begin and while all of them stream, divided by their number. The owner is the innermost line of the
project's that was running; of what it has not made, the line of the package. Objects are those that the garbage
collector reaches, without the arrays of attributes of plain objects. Tokens of this load are times, no two alike: the
parser's table of known pieces, which all streams share, fills as it does once in the life of a server.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import psutil
import uvloop

from app.runs.run_manager import RunManager
from benchmarks.load import Load, read_all
from benchmarks.measure import measure
from benchmarks.processes import child
from benchmarks.request_calls import served
from benchmarks.subjects import CHAT, FLOOR, OURS, bare_relay, ours, servers

ROOT = Path(__file__).parents[2]
WARM = Load(streams=40, tokens=20, rate=10)
LOAD = Load(streams=100, tokens=60, rate=2)
CALM = Load(streams=300, tokens=60, rate=2)
SHOWN = 25
FRAMES = 6
SETTLED_S = 4.0  # after all streams are open: what their beginnings took is free again
LOOKS = 15
Sizes = Counter[str]


async def readers(port: int, load: Load) -> asyncio.subprocess.Process:
    """Read the load's streams in another process."""
    numbers = map(str, (port, load.streams, load.tokens, load.rate))
    return await asyncio.create_subprocess_exec(sys.executable, "-m", __spec__.name, "read", *numbers)


async def all_open(runs: RunManager) -> None:
    for _ in range(LOOKS):
        await asyncio.sleep(SETTLED_S)
        if runs.states()["running"] == LOAD.streams:
            break


def owner(trace: tracemalloc.Traceback) -> str:
    """The innermost frame of the project, else the file that allocated."""
    for frame in reversed(trace):
        path = Path(frame.filename)
        if path.is_relative_to(ROOT) and "site-packages" not in path.parts and ".venv" not in path.parts:
            return f"{path.relative_to(ROOT)}:{frame.lineno}"
    last = trace[-1]
    return f"{'/'.join(Path(last.filename).parts[-2:])}:{last.lineno}"


def by_owner(snapshot: tracemalloc.Snapshot) -> Sizes:
    sizes = Sizes()
    for stat in snapshot.statistics("traceback"):
        sizes[owner(stat.traceback)] += stat.size
    return sizes


def by_type() -> tuple[Sizes, Counter[str]]:
    """Bytes and numbers of all objects that the garbage collector reaches."""
    sizes, counts = Sizes(), Counter[str]()
    seen, level = set[int](), gc.get_objects()
    while level:
        found = list[object]()
        for one in level:
            if id(one) in seen:
                continue
            seen.add(id(one))
            kind = type(one)
            name = f"{kind.__module__}.{kind.__qualname__}"
            if name == "builtins.coroutine" or name == "builtins.async_generator":
                name += f" {one.__qualname__}"
            sizes[name] += sys.getsizeof(one)
            counts[name] += 1
            found += [inner for inner in gc.get_referents(one) if not gc.is_tracked(inner) and id(inner) not in seen]
        level = found
    return sizes, counts


def table(title: str, grown: Iterable[tuple[str, float]], rows: int, counts: Counter[str] | None = None) -> None:
    print(f"\n{title}")
    for name, size in sorted(grown, key=lambda row: -row[1])[:rows]:
        number = f"{counts[name] / LOAD.streams:8.1f}" if counts else ""
        print(f"{size:10,.0f}{number}  {name}")


async def look(model: int, folder: Path, rows: int) -> None:
    async with served(f"http://127.0.0.1:{model}/v1", folder) as (port, services):
        for _ in range(2):
            warm = await readers(port, WARM)
            await warm.wait()
        gc.collect()
        before_sizes, before_counts = by_type()
        tracemalloc.start(FRAMES)
        by_owner(tracemalloc.take_snapshot())  # what this makes itself
        before, at_first = by_owner(tracemalloc.take_snapshot()), tracemalloc.get_traced_memory()[0]
        reading = await readers(port, LOAD)
        await all_open(services.runs)
        traced = tracemalloc.get_traced_memory()[0] - at_first
        after = by_owner(tracemalloc.take_snapshot())
        tracemalloc.stop()
        sizes, counts = by_type()
        reading.kill()
        await reading.wait()
    streams = LOAD.streams
    print(f"{streams} streams, each {traced / streams:,.0f} bytes in all, the two looks included")
    table("by owner", ((name, (size - before[name]) / streams) for name, size in after.items()), rows)
    counts.subtract(before_counts)
    table("by type", ((name, (size - before_sizes[name]) / streams) for name, size in sizes.items()), rows, counts)


def resident() -> None:
    """Beside a relay: the growth of the resident sets, at a rate that a busy machine can serve."""
    with servers([bare_relay(), ours()]) as started:
        grown = {name: measure(server, CALM).grown_kb for name, server in started.items()}
    print(f"resident, KB a stream: {grown[OURS]:.1f}, relay {grown[FLOOR]:.1f}, ratio {grown[OURS] / grown[FLOOR]:.2f}")


def main() -> None:
    resident()
    rows = int(sys.argv[1]) if sys.argv[1:] else SHOWN
    with tempfile.TemporaryDirectory() as name, child("-m", "benchmarks.upstream") as (upstream, _):
        uvloop.run(look(upstream, Path(name), rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        port, streams, tokens, rate = map(int, sys.argv[2:])
        uvloop.run(read_all(port, Load(streams, tokens, rate), CHAT, psutil.Process()))
    else:
        main()
