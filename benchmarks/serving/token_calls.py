"""Function calls of the event loop for a token of a stream, Python's and C's, without those of the rest of a request.

Counted as benchmarks.request_calls does it. One stream, each of whose tokens has a commit of its own: a count that no
busy machine changes. And streams side by side, which share commits, on a busy machine more of them.
`python -m benchmarks.serving.token_calls`; with a number of streams it lists their functions.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import pstats
import sys
import tempfile
from collections import Counter
from pathlib import Path

import uvloop

from benchmarks.processes import child
from benchmarks.request_calls import served
from benchmarks.upstream import LAST_CHUNK, order

SHORT, LONG = 20, 120  # tokens of an answer
RATE = 30
LONGEST = 1 << 20  # bytes of an answer
STREAMS = (1, 30, 200)  # at once
HEAD = "POST /chat HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


async def count(url: str, folder: Path, streams: int) -> Counter[str]:
    """Return the calls of a token by function."""
    async with served(url, folder) as (port, _):
        await read_streams(port, streams, LONG)
        short, long = [await calls(port, streams, tokens) for tokens in (SHORT, LONG)]
    long.subtract(short)
    return Counter({name: calls / streams / (LONG - SHORT) for name, calls in long.items()})


async def calls(port: int, streams: int, tokens: int) -> Counter[str]:
    profile = cProfile.Profile()
    profile.enable()
    await read_streams(port, streams, tokens)
    profile.disable()
    return profiled_calls(profile)


def profiled_calls(profile: cProfile.Profile) -> Counter[str]:
    """Return how often each function was called; the names of C's begin with `~`."""
    stats: dict[tuple[str, int, str], tuple[int, int]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    return Counter({f"{file}:{line} {name}": row[1] for (file, line, name), row in stats.items()})


async def read_streams(port: int, streams: int, tokens: int) -> None:
    """Read them in another process, as clients do."""
    arguments = map(str, (port, streams, tokens))
    client = await asyncio.create_subprocess_exec(sys.executable, "-m", "benchmarks.serving.token_calls", *arguments)
    if await client.wait():
        raise RuntimeError("a stream failed")


async def read_all(port: int, streams: int, tokens: int) -> None:
    await asyncio.gather(*(read_one(port, tokens, number / streams / RATE) for number in range(streams)))


async def read_one(port: int, tokens: int, start_s: float) -> None:
    await asyncio.sleep(start_s)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LONGEST)
    body = json.dumps({"message": order(tokens, RATE)})
    writer.write((HEAD % (port, len(body)) + body).encode())
    text = await reader.readuntil(LAST_CHUNK)
    writer.close()
    if b"run.finished" not in text:
        raise RuntimeError(text.decode())


def main(listed: int | None = None) -> None:
    for streams in [listed] if listed else STREAMS:
        with tempfile.TemporaryDirectory() as name, child("-m", "benchmarks.upstream") as (upstream, _):
            found = uvloop.run(count(f"http://127.0.0.1:{upstream}/v1", Path(name), streams))
        of_python = sum(calls for name, calls in found.items() if not name.startswith("~"))
        print(
            f"calls of a token, {streams:3} streams: {found.total():.1f}, of them {of_python:.1f} of Python functions"
        )
        for function, calls in found.most_common() if listed else ():
            if calls >= 0.05:
                print(f"{calls:8.2f}  {function}")


if __name__ == "__main__":
    numbers = [int(one) for one in sys.argv[1:]]
    if numbers[1:]:
        port, streams, tokens = numbers
        asyncio.run(read_all(port, streams, tokens))
    else:
        main(next(iter(numbers), None))
