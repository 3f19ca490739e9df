"""Recording and replaying runs: CPU and bytes that a recording costs, and the time in which stored runs are replayed.

`python -m benchmarks.stored.replays ROUNDS RUNS`: medians of so many rounds (3), and so many stored runs (1,000).

- The price: two servers of this version, with `record` and without, take turns, load by load, before one upstream.
- Stored runs: one run of ten rounds with about 200 KB of results, whose rows are copied; `dragoman replay --all` then.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from app.core.messages import dump
from app.core.provider import Piece, TextChunk, TokenUsage
from app.models.scripted import Reply, Scripted
from app.storage.runs import ALL, RunEnded
from app.storage.sessions import MessageRow
from app.storage.store import Store
from benchmarks.load import Load
from benchmarks.log import spread
from benchmarks.measure import Measured, measure
from benchmarks.subjects import ours, servers
from tests.support.server.serving import serving

ROUNDS, RUNS, JOBS = 3, 1000, 2
OFF, ON = "not recorded", "recorded"
LOADS = {"tokens": Load(streams=100, tokens=150, rate=30), "requests": Load(streams=1, tokens=1, rate=0, turns=300)}
WORDS = ("the", "of", "and", "a", "to", "in", "is", "you", "that", "it", "he", "was", "for", "on", "are", "as", "with")
READS, RESULT_WORDS, REPLY_WORDS = 9, 6000, 200


def price(rounds: int) -> None:
    """Print the CPU of a token and of a request with and without a recording, and the bytes of a token in it."""
    got, bytes_a_token = list[dict[tuple[str, str], Measured]](), list[float]()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            subjects = [ours(OFF), ours(ON, "--record", "--data-dir", f"{folder}/data")]
            with servers(subjects) as started:
                before = recorded_bytes(Path(folder))
                one = {}
                for load in LOADS:
                    for name, server in started.items():
                        one[load, name] = measure(server, LOADS[load])
                    if load == "tokens":
                        spent = recorded_bytes(Path(folder)) - before
                        bytes_a_token.append(spent / LOADS[load].streams / LOADS[load].tokens)
                got.append(one)
    for load, field, unit in (("tokens", "token_us", "us/token"), ("requests", "answer_us", "us/request")):
        off, on = ([getattr(one[load, name], field) for one in got] for name in (OFF, ON))
        ratios = [recorded / bare for recorded, bare in zip(on, off, strict=True)]
        print(f"{unit:12} {OFF} {spread(off)}, {ON} {spread(on)}, ratio {spread(ratios)}")
    print(f"{'bytes/token':12} {spread(bytes_a_token)} in the table of recordings")


def recorded_bytes(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "data" / "dragoman.db")) as db:
        [[size]] = db.execute("SELECT coalesce(sum(length(data)), 0) FROM recordings").fetchall()
        return int(size)


def replies(chance: random.Random) -> Iterator[Reply]:
    for number in range(READS):
        call = f'\n<tool_call>\n{{"name": "read_file", "arguments": {{"path": "file{number}.txt"}}}}\n</tool_call>'
        yield [*prose(chance, REPLY_WORDS), TextChunk(call), TokenUsage(1000 * number + 100, 250)]
    yield [*prose(chance, REPLY_WORDS), TokenUsage(9000, 300)]


def prose(chance: random.Random, count: int) -> list[Piece]:
    return [TextChunk(f"{chance.choice(WORDS)} ") for _ in range(count)]


async def store_runs(folder: Path, count: int) -> tuple[int, int]:
    """Store so many runs; the bytes of the log and of the recording of one."""
    chance = random.Random(1)
    model = Scripted(list(replies(chance)))
    async with serving(folder, model, record=True, window=100_000, result_characters=30_000) as served:
        for number in range(READS):
            lines = (" ".join(chance.choices(WORDS, k=12)) for _ in range(RESULT_WORDS // 12))
            (folder / "work" / f"file{number}.txt").write_text("\n".join(lines))
        first = (await served.chat("Read them"))[0]
        return await copy_run(served.services.store, first["run"], first["session"], count - 1)


async def copy_run(store: Store, run: str, session: str, count: int) -> tuple[int, int]:
    row, parts = await store.run(run), await store.recording(run)
    events, messages = await store.events(run, 0, ALL), await store.messages(session)
    conversation = await store.session(session)
    assert row and row.ended and conversation
    for number in range(count):
        to_run, to_session = f"run_{number:020x}", f"ses_{number:020x}"
        await store.write(
            [
                replace(conversation, id=to_session),
                replace(row, id=to_run, session=to_session, state="running", ended=None),
                *(MessageRow(to_session, at, to_run, dump(one)) for at, one in enumerate(messages)),
                *(replace(one, run=to_run) for one in parts),
            ]
        )
        copies = [replace(one, run=to_run, data=one.data.replace(run, to_run)) for one in events]
        await store.write([replace(one, data=one.data.replace(session, to_session)) for one in copies])
        await store.write([RunEnded(to_run, row.state, row.ended)])
    return sum(len(one.data) for one in events), sum(len(one.data) for one in parts)


def replay_all(count: int) -> None:
    """Print the time in which so many stored runs are replayed."""
    with tempfile.TemporaryDirectory() as folder:
        log, recording = asyncio.run(store_runs(Path(folder), count))
        print(f"{count:,} runs of {READS + 1} rounds: {log:,} bytes of log, {recording:,} of recording each")
        command = (sys.executable, "-m", "routes", "replay", "--all", "--jobs", str(JOBS))
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        ended = subprocess.run([*command, "--data-dir", f"{folder}/data"], check=True, capture_output=True, text=True)
        seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(ended.stdout.strip())
    print(f"{seconds:.1f} s with {JOBS} processes, {1000 * cpu / count:.1f} ms of CPU a run")


def main(arguments: Sequence[str] = ()) -> None:
    rounds, runs, *_ = [*map(int, arguments), *(ROUNDS, RUNS)[len(arguments) :]]
    print(f"load of the machine: {', '.join(f'{one:.1f}' for one in os.getloadavg())}")
    price(rounds)
    replay_all(runs)


if __name__ == "__main__":
    main(sys.argv[1:])
