"""Start-up: from the command to a server that answers /readyz, what the imports cost of it, and bare Python.

Wall time and CPU of the process itself, the best and the median of interleaved tries: other work on the machine
adds to the wall time, and only a quiet machine gives the best of either. Then the memory of
an idle server, resident and private (what it would free if it ended), and after each of REQUESTS: the first of a kind
imports or builds something.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import psutil

from benchmarks.measure import until_idle
from benchmarks.processes import cpu_s, dragoman

TRIES = 9
WARM_S = 1.0  # after which the warm-up in the background has begun
REQUESTS = ("POST /chat", "GET /sessions")
# As `serve` has them: without the garbage collector.
IMPORTS = "from routes.cli.main import no_garbage_collection as off\nwith off(): import routes.server"
CONFIGURED = ("--model-url", "http://127.0.0.1:9/v1", "--model", "none")


@dataclass(frozen=True, slots=True)
class Cost:
    wall_s: float
    cpu_s: float


def ready_cost(*flags: str) -> Cost:
    """The cost until /readyz answers that the server is ready."""
    started = time.perf_counter()
    with dragoman(*flags) as (port, process):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            assert json.load(answer)["ready"]
        return Cost(time.perf_counter() - started, cpu_s(process))


def code_cost(code: str) -> Cost:
    """The cost of a Python process that runs `code` and ends."""
    started, used = time.perf_counter(), _children_s()
    subprocess.run([sys.executable, "-c", code], check=True)
    return Cost(time.perf_counter() - started, _children_s() - used)


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    measure: Callable[[], Cost]
    budget_s: float | None = None


SUBJECTS = (
    Subject("bare python", partial(code_cost, "pass")),
    Subject("imports", partial(code_cost, IMPORTS), 0.3),
    Subject("configured", partial(ready_cost, *CONFIGURED), 0.35),
    Subject("embedded", ready_cost, 2.0),
)


def memory(*flags: str) -> list[tuple[str, float, float]]:
    """The memory of an idle server in MB, resident and private, when it is warm and after each of REQUESTS."""
    found = []

    def note(name: str, process: psutil.Process) -> None:
        until_idle(process)
        seen = process.memory_full_info()
        found.append((name, seen.rss / 2**20, seen.uss / 2**20))

    with dragoman(*flags) as (port, process):
        time.sleep(WARM_S)
        note("idle", process)
        for name in REQUESTS:
            method, path = name.split()
            body = json.dumps({"message": "Hello"}).encode() if method == "POST" else None
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}{path}", body, {"content-type": "application/json"}
            )
            with suppress(OSError), urllib.request.urlopen(request, timeout=30) as answer:
                answer.read()
            note(name, process)
    return found


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed server has its bytecode; compiling it takes as long
    for subject in SUBJECTS:
        subject.measure()  # writes the bytecode
    costs: dict[str, list[Cost]] = {subject.name: [] for subject in SUBJECTS}
    for _ in range(TRIES):
        for subject in SUBJECTS:
            costs[subject.name].append(subject.measure())
    print(f"{'seconds':14}{'wall best':>10}{'median':>8}{'CPU best':>10}{'median':>8}{'budget':>8}")
    for subject in SUBJECTS:
        walls, cpus = [cost.wall_s for cost in costs[subject.name]], [cost.cpu_s for cost in costs[subject.name]]
        figures = f"{min(walls):10.3f}{statistics.median(walls):8.3f}{min(cpus):10.3f}{statistics.median(cpus):8.3f}"
        print(f"{subject.name:14}{figures}{subject.budget_s or '':>8}")
    print(f"\n{'MB':14}{'resident':>10}{'private':>10}")
    for name, resident, private in memory("--model-url", "scripted:"):
        print(f"{name:14}{resident:10.1f}{private:10.1f}")


if __name__ == "__main__":
    main()
