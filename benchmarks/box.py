"""What a box costs: the start of a command in it, as a ratio to plain `bash -c true` between the same two moments.

Rounds take turns, so that all rows have the same load of the machine; the server's own share is CPU time of this
process, without its children, and of Python's `subprocess` for the plain one.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing
from pathlib import Path

from tools.base.outcome import Result
from tools.builtin.shell import running
from tools.sandbox.network.secrets import BoxSecret
from tools.sandbox.sandbox import NoSandbox, find_sandbox
from tools.tool import Context

ROUNDS = 60
Start = Callable[[], Awaitable[None]]
bash = running("bash", "command")


async def plain() -> None:
    process = await asyncio.create_subprocess_exec("bash", "-c", "true", stdout=subprocess.DEVNULL)
    assert await process.wait() == 0


def starting(context: Context, *hosts: str) -> Start:
    async def start() -> None:
        arguments = {"command": "true", **({"network": list(hosts)} if hosts else {})}
        async with aclosing(bash(arguments, context)) as news:
            *_, last = [seen async for seen in news]
        assert isinstance(last, Result) and last.ok, last

    return start


def rows(stack: ExitStack) -> dict[str, Start]:
    """What is measured, in this order."""
    empty, repository = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
    subprocess.run(["git", "init", "-q", repository], check=True)
    found: dict[str, Start] = {"bash -c true": plain}
    for level in ("bubblewrap", "landlock"):
        if isinstance(box := find_sandbox(levels=[level]), NoSandbox):
            print(box.reason)
            continue
        found[level] = starting(Context(empty, 60, box))
        if level == "bubblewrap":
            found[f"{level}, git repository"] = starting(Context(repository, 60, box))
            found[f"{level}, network"] = starting(Context(empty, 60, box), "example.org")
            secret = BoxSecret(name="a", variable="A", placeholder="placeholder", value="value", hosts=("example.org",))
            found[f"{level}, network, secret"] = starting(Context(empty, 60, box, secrets=[secret]), "example.org")
            found[f"{level}, git repository, network"] = starting(Context(repository, 60, box), "example.org")
    unboxed = find_sandbox(unsafe=True)
    return {**found, "without a sandbox": starting(Context(empty, 60, unboxed))}


async def measured(starts: dict[str, Start]) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds and own CPU seconds of each start."""
    taken: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in starts}
    for number in range(ROUNDS + 2):
        for name, start in starts.items():
            began, own = time.perf_counter(), time.process_time()
            await start()
            if number >= 2:  # those before only warm up
                taken[name][0].append(time.perf_counter() - began)
                taken[name][1].append(time.process_time() - own)
    return taken


def main() -> None:
    with ExitStack() as stack:
        taken = asyncio.run(measured(rows(stack)))
    base = statistics.median(taken["bash -c true"][0])
    print(f"{'':38}{'median ms':>10}{'best ms':>10}{'ratio':>8}{'own CPU ms':>12}")
    for name, (whole, own) in taken.items():
        middle = statistics.median(whole)
        figures = (
            f"{middle * 1e3:10.1f}{min(whole) * 1e3:10.1f}{middle / base:8.1f}{statistics.median(own) * 1e3:12.2f}"
        )
        print(f"{name:38}{figures}")


if __name__ == "__main__":
    main()
